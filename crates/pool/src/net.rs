//! Sockets for futures.
//!
//! Every method tries the operation first. It waits only if the operation would block, or if the
//! future has used up its budget for this poll (`budget`).

use std::fmt;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};

use crate::reactor::Reactor;
pub use crate::source::IoSafe;
use crate::source::{Side, Watched};
use crate::{budget, current, global};

/// A socket, or another file descriptor that can be polled, for use in futures.
///
/// It is watched by the pool on whose thread it was created, or by the [global
/// pool](crate::Pool::global) on any other thread. Any future on any thread may use it, several at
/// once. When that pool is closed, waiting returns an error.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
/// use filch_pool::{block_on, spawn_future, net::Async};
///
/// let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0).into())?;
/// let address = listener.get_ref().local_addr()?;
/// let greeter = spawn_future(async move {
///     let (stream, _from) = listener.accept().await?;
///     stream.write_all(b"hello").await
/// });
/// let greeting = block_on(async {
///     let stream = Async::<TcpStream>::connect(address).await?;
///     let mut greeting = [0; 5];
///     stream.read_exact(&mut greeting).await?;
///     std::io::Result::Ok(greeting)
/// })?;
/// assert_eq!(&greeting, b"hello");
/// block_on(greeter)??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Async<T: IoSafe> {
    watched: Watched<T>,
}

impl<T: IoSafe + fmt::Debug> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Async").field(self.get_ref()).finish()
    }
}

/// The reactor that watches what is created on this thread.
fn home() -> io::Result<Arc<Reactor>> {
    current::with(|local| match local {
        Some(local) => local.core.make_reactor().cloned(),
        None => global::pool().core().make_reactor().cloned(),
    })
}

impl<T: IoSafe> Async<T> {
    /// Registers a file descriptor, and makes it non-blocking.
    ///
    /// # Errors
    /// If the system cannot poll it, as is the case for regular files; or if the pool is closed.
    ///
    /// ```
    /// # use std::os::unix::net::UnixStream;
    /// # use filch_pool::net::Async;
    /// use std::io::{Read, Write};
    /// let (left, right) = UnixStream::pair()?;
    /// let (left, right) = (Async::new(left)?, Async::new(right)?);
    /// let byte = filch_pool::block_on(async {
    ///     left.write_with(|mut left| left.write(b"x")).await?;
    ///     let mut byte = [0];
    ///     right.read_with(|mut right| right.read(&mut byte)).await?;
    ///     std::io::Result::Ok(byte)
    /// })?;
    /// assert_eq!(byte, *b"x");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new(io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(io.as_fd(), true)?;
        Ok(Self { watched: Watched::new(&home()?, io)? })
    }

    /// The wrapped value.
    ///
    /// ```
    /// # use filch_pool::net::Async;
    /// let socket = Async::<std::net::UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// assert_ne!(socket.get_ref().local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn get_ref(&self) -> &T {
        self.watched.get()
    }

    /// Unwraps the value. It stays non-blocking.
    ///
    /// ```
    /// # use filch_pool::net::Async;
    /// let socket = Async::<std::net::UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// socket.into_inner().set_nonblocking(false)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn into_inner(self) -> T {
        self.watched.into_inner()
    }

    /// Waits until it is readable, or has an error. May return early.
    ///
    /// # Errors
    /// If the pool that watches it is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::os::unix::net::UnixStream;
    /// let (left, right) = UnixStream::pair()?;
    /// let right = Async::new(right)?;
    /// drop(left);
    /// block_on(right.readable())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn readable(&self) -> impl Future<Output = io::Result<()>> {
        self.watched.ready(Side::Read)
    }

    /// Waits until it is writable, or has an error. May return early.
    ///
    /// # Errors
    /// If the pool that watches it is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::os::unix::net::UnixStream;
    /// let (left, _right) = UnixStream::pair()?;
    /// block_on(Async::new(left)?.writable())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn writable(&self) -> impl Future<Output = io::Result<()>> {
        self.watched.ready(Side::Write)
    }

    /// Tries `operation` until it returns something else than
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), and waits until the socket is readable before
    /// each further try.
    ///
    /// # Errors
    /// Any other error of `operation`, or if the pool that watches it is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::os::unix::net::UnixDatagram;
    /// let (left, right) = UnixDatagram::pair()?;
    /// left.send(b"hello")?;
    /// let right = Async::new(right)?;
    /// let mut text = [0; 8];
    /// let length = block_on(right.read_with(|socket| socket.recv(&mut text)))?;
    /// assert_eq!(&text[..length], b"hello");
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn read_with<R>(&self, operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.retry(Side::Read, operation).await
    }

    /// Like [`read_with`](Self::read_with), but waits until the socket is writable.
    ///
    /// # Errors
    /// Any other error of `operation`, or if the pool that watches it is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::os::unix::net::UnixDatagram;
    /// let (left, _right) = UnixDatagram::pair()?;
    /// let left = Async::new(left)?;
    /// assert_eq!(block_on(left.write_with(|socket| socket.send(b"hello")))?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn write_with<R>(&self, operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.retry(Side::Write, operation).await
    }

    async fn retry<R>(
        &self,
        side: Side,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        budget::some_left().await;
        loop {
            match operation(self.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => {
                    budget::spend();
                    return outcome;
                }
            }
            self.watched.ready(side).await?;
        }
    }
}

impl Async<TcpStream> {
    /// Connects to that address.
    ///
    /// # Errors
    /// If the connection is refused, or the address cannot be reached; or as [`Async::new`].
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let stream = block_on(Async::<TcpStream>::connect(address))?;
    /// assert_eq!(stream.get_ref().peer_addr()?, address);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        let is_begun = match connect(&socket, &address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS | Errno::INTR) => true,
            Err(error) => return Err(error.into()),
        };
        let stream = Self::new(TcpStream::from(socket))?;
        if is_begun {
            stream.connected().await?;
        }
        Ok(stream)
    }

    /// Waits until a connection is established, or has failed.
    async fn connected(&self) -> io::Result<()> {
        loop {
            self.watched.ready(Side::Write).await?;
            if let Some(error) = self.get_ref().take_error()? {
                return Err(error);
            }
            match self.get_ref().peer_addr() {
                Ok(_) => return Ok(()),
                // The wait returned early.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads available bytes, at least one, and returns how many; zero at the end of the stream.
    ///
    /// # Errors
    /// If the connection is broken, or the pool that watches it is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = block_on(Async::<TcpStream>::connect(listener.local_addr()?))?;
    /// drop(listener.accept()?);
    /// assert_eq!(block_on(stream.read(&mut [0; 8]))?, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_with(|mut stream| stream.read(buffer)).await
    }

    /// Fills the buffer.
    ///
    /// # Errors
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the stream ends before; or as
    /// [`read`](Self::read).
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// # use std::io::Write;
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = block_on(Async::<TcpStream>::connect(listener.local_addr()?))?;
    /// listener.accept()?.0.write_all(b"hello")?;
    /// let mut text = [0; 5];
    /// block_on(stream.read_exact(&mut text))?;
    /// assert_eq!(&text, b"hello");
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn read_exact(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let length = self.read(buffer).await?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = &mut buffer[length..];
        }
        Ok(())
    }

    /// Reads available bytes without removing them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// # use std::io::Write;
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = block_on(Async::<TcpStream>::connect(listener.local_addr()?))?;
    /// listener.accept()?.0.write_all(b"x")?;
    /// assert_eq!(block_on(stream.peek(&mut [0; 8]))?, 1);
    /// assert_eq!(block_on(stream.read(&mut [0; 8]))?, 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_with(|stream| stream.peek(buffer)).await
    }

    /// Writes as many bytes as possible, at least one, and returns how many.
    ///
    /// # Errors
    /// If the connection is broken, or the pool that watches it is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = block_on(Async::<TcpStream>::connect(listener.local_addr()?))?;
    /// assert_eq!(block_on(stream.write(b"hello"))?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.write_with(|mut stream| stream.write(buffer)).await
    }

    /// Writes the whole buffer.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = block_on(Async::<TcpStream>::connect(listener.local_addr()?))?;
    /// block_on(stream.write_all(b"hello"))?;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn write_all(&self, mut buffer: &[u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let length = self.write(buffer).await?;
            if length == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            buffer = &buffer[length..];
        }
        Ok(())
    }

    /// Shuts down one direction, or both. It never waits.
    ///
    /// # Errors
    /// If the connection is broken.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{Shutdown, TcpListener, TcpStream};
    /// # use std::io::Read;
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = block_on(Async::<TcpStream>::connect(listener.local_addr()?))?;
    /// stream.shutdown(Shutdown::Write)?;
    /// assert_eq!(listener.accept()?.0.read(&mut [0; 8])?, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.get_ref().shutdown(how)
    }
}

impl Async<TcpListener> {
    /// Listens on that address; port zero picks a free one.
    ///
    /// # Errors
    /// If the address is in use, or does not belong to this machine; or as [`Async::new`].
    ///
    /// ```
    /// # use filch_pool::net::Async;
    /// # use std::net::TcpListener;
    /// let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0).into())?;
    /// assert_ne!(listener.get_ref().local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpListener::bind(address)?)
    }

    /// Accepts the next connection, and returns its address too.
    ///
    /// # Errors
    /// If the system is out of resources, or the pool that watches the listener is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0).into())?;
    /// let client = TcpStream::connect(listener.get_ref().local_addr()?)?;
    /// let (_stream, from) = block_on(listener.accept())?;
    /// assert_eq!(from, client.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn accept(&self) -> io::Result<(Async<TcpStream>, SocketAddr)> {
        let (stream, from) = self.read_with(TcpListener::accept).await?;
        Ok((Async::new(stream)?, from))
    }

    /// The incoming connections, one after the other.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0).into())?;
    /// let client = TcpStream::connect(listener.get_ref().local_addr()?)?;
    /// let mut incoming = listener.incoming();
    /// let stream = block_on(incoming.next())?;
    /// assert_eq!(stream.get_ref().peer_addr()?, client.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }
}

/// Incoming connections: see [`Async::incoming`].
///
/// ```
/// # use filch_pool::net::Async;
/// # use std::net::TcpListener;
/// let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0).into())?;
/// let incoming = listener.incoming();
/// assert!(format!("{incoming:?}").contains("127.0.0.1"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a Async<TcpListener>,
}

impl Incoming<'_> {
    /// The next connection.
    ///
    /// # Errors
    /// As [`Async::accept`].
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::{TcpListener, TcpStream};
    /// let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0).into())?;
    /// let _client = TcpStream::connect(listener.get_ref().local_addr()?)?;
    /// let _stream = block_on(listener.incoming().next())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn next(&mut self) -> io::Result<Async<TcpStream>> {
        self.listener.accept().await.map(|(stream, _from)| stream)
    }
}

impl Async<UdpSocket> {
    /// A socket bound to that address; port zero picks a free one.
    ///
    /// # Errors
    /// If the address is in use, or does not belong to this machine; or as [`Async::new`].
    ///
    /// ```
    /// # use filch_pool::net::Async;
    /// # use std::net::UdpSocket;
    /// let socket = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// assert_ne!(socket.get_ref().local_addr()?.port(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::new(UdpSocket::bind(address)?)
    }

    /// Sets the peer: from now on the socket sends to it and receives from it only. It never waits.
    ///
    /// # Errors
    /// If the address cannot be used.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::UdpSocket;
    /// let one = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// let other = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// one.connect(other.get_ref().local_addr()?)?;
    /// other.connect(one.get_ref().local_addr()?)?;
    /// block_on(one.send(b"hello"))?;
    /// assert_eq!(block_on(other.recv(&mut [0; 8]))?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        self.get_ref().connect(address)
    }

    /// Sends one datagram to that address.
    ///
    /// # Errors
    /// If it is too large, or cannot be sent there; or if the pool that watches the socket is
    /// closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::UdpSocket;
    /// let one = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// let other = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// block_on(one.send_to(b"hello", other.get_ref().local_addr()?))?;
    /// let (length, from) = block_on(other.recv_from(&mut [0; 8]))?;
    /// assert_eq!((length, from), (5, one.get_ref().local_addr()?));
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn send_to(&self, buffer: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.write_with(|socket| socket.send_to(buffer, address)).await
    }

    /// Receives one datagram, cut off if it does not fit, and returns its sender too.
    ///
    /// # Errors
    /// If the pool that watches the socket is closed.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::UdpSocket;
    /// let socket = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// UdpSocket::bind("127.0.0.1:0")?.send_to(b"hello", socket.get_ref().local_addr()?)?;
    /// assert_eq!(block_on(socket.recv_from(&mut [0; 8]))?.0, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read_with(|socket| socket.recv_from(buffer)).await
    }

    /// Sends one datagram to the [connected](Self::connect) peer.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to), or if it is not connected.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::UdpSocket;
    /// let other = UdpSocket::bind("127.0.0.1:0")?;
    /// let socket = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// socket.connect(other.local_addr()?)?;
    /// assert_eq!(block_on(socket.send(b"hello"))?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn send(&self, buffer: &[u8]) -> io::Result<usize> {
        self.write_with(|socket| socket.send(buffer)).await
    }

    /// Receives one datagram from the [connected](Self::connect) peer.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from), or if the peer is gone.
    ///
    /// ```
    /// # use filch_pool::{block_on, net::Async};
    /// # use std::net::UdpSocket;
    /// let other = UdpSocket::bind("127.0.0.1:0")?;
    /// let socket = Async::<UdpSocket>::bind(([127, 0, 0, 1], 0).into())?;
    /// socket.connect(other.local_addr()?)?;
    /// other.send_to(b"hello", socket.get_ref().local_addr()?)?;
    /// assert_eq!(block_on(socket.recv(&mut [0; 8]))?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_with(|socket| socket.recv(buffer)).await
    }
}

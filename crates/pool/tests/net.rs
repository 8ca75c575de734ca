//! Sockets: data arrives, waiting futures are woken, and waiting workers sleep.

mod busy;

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{
    Pool, block_on,
    net::Async,
    spawn_future,
    stats::WorkerState,
    time::{Elapsed, sleep, timeout},
};

use busy::occupy;

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().expect("threads can be started")
}

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Sends everything back until the end of the stream.
async fn echo(stream: Async<TcpStream>) -> io::Result<usize> {
    let mut buffer = [0; 1024];
    let mut total = 0;
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(total);
        }
        stream.write_all(&buffer[..length]).await?;
        total += length;
    }
}

/// Sends a number that many times, and expects it back each time.
async fn ping(address: SocketAddr, times: u32) -> io::Result<()> {
    let stream = Async::<TcpStream>::connect(address).await?;
    for n in 0..times {
        stream.write_all(&n.to_be_bytes()).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        assert_eq!(u32::from_be_bytes(answer), n);
    }
    stream.shutdown(Shutdown::Write)?;
    assert_eq!(stream.read(&mut [0; 1]).await?, 0);
    Ok(())
}

/// Serves that many clients, and returns how many bytes each has sent.
async fn serve(listener: Async<TcpListener>, clients: usize) -> io::Result<Vec<usize>> {
    let mut incoming = listener.incoming();
    let mut handles = Vec::new();
    for _ in 0..clients {
        handles.push(spawn_future(echo(incoming.next().await?)));
    }
    let mut totals = Vec::new();
    for handle in handles {
        totals.push(handle.await.expect("it does not panic")?);
    }
    Ok(totals)
}

fn clients_are_served(threads: usize, clients: usize, times: u32) {
    let pool = pool(threads);
    let listener = pool.install(|| Async::<TcpListener>::bind(any_port())).expect("loopback works");
    let address = listener.get_ref().local_addr().expect("loopback works");
    let server = pool.spawn_future(serve(listener, clients));
    let handles: Vec<_> = (0..clients).map(|_| pool.spawn_future(ping(address, times))).collect();
    for handle in handles {
        block_on(handle).expect("it does not panic").expect("loopback works");
    }
    let totals = block_on(server).expect("it does not panic").expect("loopback works");
    assert_eq!(totals, vec![4 * times as usize; clients]);
}

#[test]
fn ping_and_pong_over_tcp_on_one_worker() {
    clients_are_served(1, 1, 1000);
}

#[test]
fn ping_and_pong_over_tcp_on_two_workers() {
    clients_are_served(2, 1, 1000);
}

#[test]
fn a_hundred_clients_are_served_by_two_workers() {
    clients_are_served(2, 100, 20);
}

#[test]
fn ping_and_pong_over_udp() {
    let pool = pool(2);
    let (one, other) = pool.install(|| {
        (
            Async::<UdpSocket>::bind(any_port()).unwrap(),
            Async::<UdpSocket>::bind(any_port()).unwrap(),
        )
    });
    let (here, there) =
        (one.get_ref().local_addr().unwrap(), other.get_ref().local_addr().unwrap());
    one.connect(there).unwrap();
    let pong = pool.spawn_future(async move {
        let mut buffer = [0; 4];
        for _ in 0..1000 {
            let (length, from) = other.recv_from(&mut buffer).await?;
            assert_eq!((length, from), (4, here));
            other.send_to(&buffer, from).await?;
        }
        io::Result::Ok(())
    });
    // From a thread that is not a worker, on sockets that the pool watches.
    block_on(async {
        for n in 0..1000_u32 {
            one.send(&n.to_be_bytes()).await?;
            let mut answer = [0; 4];
            one.recv(&mut answer).await?;
            assert_eq!(u32::from_be_bytes(answer), n);
        }
        io::Result::Ok(())
    })
    .unwrap();
    block_on(pong).expect("it does not panic").unwrap();
}

#[test]
fn connecting_to_a_closed_port_is_refused() {
    let gone = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let refused = block_on(Async::<TcpStream>::connect(gone)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_socket_can_wait_to_read_and_to_write_at_once() {
    let pool = pool(2);
    let listener = TcpListener::bind(any_port()).unwrap();
    let stream = block_on(Async::<TcpStream>::connect(listener.local_addr().unwrap())).unwrap();
    let stream = Arc::new(stream);
    let (mut peer, _) = listener.accept().unwrap();
    let reader = pool.spawn_future({
        let stream = Arc::clone(&stream);
        async move {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.map(|()| byte)
        }
    });
    // More than fits into the socket buffers: it has to wait until the other side reads.
    let writer = pool.spawn_future({
        let stream = Arc::clone(&stream);
        async move {
            let lot = vec![7; 16 << 20];
            stream.write_all(&lot).await?;
            stream.shutdown(Shutdown::Write)
        }
    });
    peer.write_all(b"x").unwrap();
    assert_eq!(block_on(reader).expect("it does not panic").unwrap(), [b'x']);
    assert!(!writer.is_finished());
    let read = io::copy(&mut peer, &mut io::sink()).unwrap();
    assert_eq!(read, 16 << 20);
    block_on(writer).expect("it does not panic").unwrap();
}

#[test]
fn a_cancelled_wait_leaves_the_socket_usable() {
    let (left, right) = UnixDatagram::pair().unwrap();
    let right = Async::new(right).unwrap();
    block_on(async {
        for _ in 0..10 {
            let nothing = timeout(Duration::from_millis(1), right.readable()).await;
            assert!(matches!(nothing, Err(Elapsed)));
        }
        left.send(b"x").unwrap();
        right.readable().await.unwrap();
        assert_eq!(right.read_with(|socket| socket.recv(&mut [0; 8])).await.unwrap(), 1);
    });
}

#[test]
fn several_futures_wait_for_the_same_side() {
    let pool = pool(2);
    let (left, right) = UnixDatagram::pair().unwrap();
    let right = Arc::new(pool.install(|| Async::new(right)).unwrap());
    let handles: Vec<_> = (0..50)
        .map(|_| {
            let right = Arc::clone(&right);
            pool.spawn_future(
                async move { right.read_with(|socket| socket.recv(&mut [0; 8])).await },
            )
        })
        .collect();
    for _ in 0..50 {
        left.send(b"x").unwrap();
    }
    for handle in handles {
        assert_eq!(block_on(handle).expect("it does not panic").unwrap(), 1);
    }
}

#[test]
fn waiting_for_a_socket_ends_when_the_pool_is_closed() {
    let pool = pool(1);
    let socket = pool.install(|| Async::<UdpSocket>::bind(any_port())).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let waiter = thread::spawn(move || {
        block_on(async {
            begun.send(()).expect("the test waits for it");
            socket.readable().await
        })
    });
    has_begun.recv().expect("it begins");
    drop(pool);
    let error = waiter.join().expect("it ends").unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}

/// How often a future sends and receives before a task that was spawned after it runs, on one
/// thread.
#[test]
fn a_socket_that_is_always_ready_does_not_starve_other_tasks() {
    let pool = pool(1);
    let go = occupy(&pool);
    let (has_run, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (is_over, counter) = (Arc::clone(&has_run), Arc::clone(&count));
    let busy = pool.spawn_future(async move {
        let (left, right) = UnixDatagram::pair()?;
        let (left, right) = (Async::new(left)?, Async::new(right)?);
        while !is_over.load(SeqCst) {
            left.write_with(|socket| socket.send(b"x")).await?;
            right.read_with(|socket| socket.recv(&mut [0])).await?;
            counter.fetch_add(1, SeqCst);
        }
        io::Result::Ok(())
    });
    let seen = Arc::clone(&count);
    let other = pool.spawn(move || {
        has_run.store(true, SeqCst);
        seen.load(SeqCst)
    });
    go.send(()).unwrap();
    let before = other.wait().unwrap();
    block_on(busy).unwrap().unwrap();
    // A few hundred: the budget of one poll, a few polls in a row.
    assert!(before < 1_000, "{before}");
}

/// How much it costs is measured by `cargo xtask bench pool --only idle`.
#[test]
fn workers_sleep_while_a_socket_and_a_timer_wait() {
    let pool = pool(2);
    let listener = pool.install(|| Async::<TcpListener>::bind(any_port())).expect("loopback works");
    let server = pool.spawn_future(async move { listener.accept().await.map(|_| ()) });
    let timer = pool.spawn_future(sleep(Duration::from_secs(3600)));
    let begun = Instant::now();
    let asleep = loop {
        let stats = pool.stats();
        if stats.sleeping == 2 && stats.in_state(WorkerState::Sleeping) == 2 {
            break stats;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", pool.trace_line());
        thread::yield_now();
    };
    thread::sleep(Duration::from_millis(100));
    let later = pool.stats();
    assert_eq!((later.ticks(), later.parks()), (asleep.ticks(), asleep.parks()), "no worker woke");
    server.abort();
    timer.abort();
}

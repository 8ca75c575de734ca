//! Futures that need tokio's reactor, on threads of the pool.

use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{Pool, block_on, join};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// A runtime, and a pool whose threads enter it.
fn both() -> (Runtime, Pool) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a thread can be started");
    let pool = Pool::builder().threads(2).name("ours").tokio(runtime.handle().clone());
    (runtime, pool.build().expect("threads can be started"))
}

/// Whether this is a thread of the pool.
fn is_ours() -> bool {
    thread::current().name().is_some_and(|name| name.starts_with("ours-"))
}

#[test]
fn a_tokio_timer_wakes_a_future() {
    let (_runtime, pool) = both();
    let begun = Instant::now();
    let nap = pool.spawn_future(async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        is_ours()
    });
    assert!(block_on(nap).expect("it ends"));
    assert!(begun.elapsed() >= Duration::from_millis(20));
}

#[test]
fn tokio_sockets_work_on_pool_threads() {
    let (_runtime, pool) = both();
    let sum = pool.spawn_future(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = filch_pool::spawn_future(async move {
            let (mut stream, _) = listener.accept().await?;
            let mut bytes = [0; 2];
            stream.read_exact(&mut bytes).await?;
            assert!(is_ours());
            let (a, b) = join(|| bytes[0], || bytes[1]);
            stream.write_u8(a + b).await
        });
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&[3, 4]).await?;
        let sum = stream.read_u8().await?;
        server.await.expect("it ends")?;
        std::io::Result::Ok(sum)
    });
    assert_eq!(block_on(sum).expect("it ends").expect("loopback works"), 7);
}

#[test]
fn tokio_spawn_runs_in_the_runtime() {
    let (_runtime, pool) = both();
    let outside =
        pool.spawn_future(async { tokio::spawn(async { is_ours() }).await.expect("it ends") });
    assert!(!block_on(outside).expect("it ends"));
}

#[test]
fn an_external_thread_enters_the_runtime_too() {
    let (_runtime, pool) = both();
    let is_inside = || tokio::runtime::Handle::try_current().is_ok();
    assert!(!is_inside());
    let (theirs, ours) = pool.enter(|| {
        let begun = tokio::spawn(async { is_ours() });
        (begun, is_inside())
    });
    assert!(ours);
    assert!(!block_on(theirs).expect("it ends"), "it runs over there");
    assert!(!is_inside(), "only while it is in the pool");
}

//! A TCP connection that a test can cut: a port on the loopback whose connections are passed on to another port.
//!
//! Threads carry the bytes, so that a link works in any runtime. A cut link ends its connections and takes no others.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Bytes carried at a time.
const CHUNK_BYTES: usize = 64 << 10;

struct Shared {
    cut: AtomicBool,
    ended: AtomicBool,
    /// Both ends of every connection; few, and dropped when the link is cut.
    open: Mutex<Vec<TcpStream>>,
}

/// A port that leads to another; it ends with its drop.
pub struct Link {
    port: u16,
    shared: Arc<Shared>,
}

impl Link {
    /// A link to a port of the loopback.
    #[must_use]
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no port: {error}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        let shared = Arc::new(Shared {
            cut: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            open: Mutex::new(Vec::new()),
        });
        let taken = Arc::clone(&shared);
        thread::spawn(move || taken.accept(&listener, target));
        Self { port, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the connections and takes no others.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::SeqCst);
        self.shared.end_all();
    }

    /// Takes connections again.
    pub fn heal(&self) {
        self.shared.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.end_all();
        // Wakes the thread that waits for a connection, so that it sees the end.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener, target: u16) {
        for near in listener.incoming() {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let Ok(near) = near else { continue };
            if self.cut.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
            drop(self.join(near, far));
        }
    }

    fn join(self: &Arc<Self>, near: TcpStream, far: TcpStream) -> io::Result<()> {
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.push(near.try_clone()?);
            open.push(far.try_clone()?);
        }
        if self.cut.load(Ordering::SeqCst) {
            self.end_all();
        }
        thread::spawn(move || carry(near, far));
        thread::spawn(move || carry(far_too, near_too));
        Ok(())
    }

    fn end_all(&self) {
        for end in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            drop(end.shutdown(Shutdown::Both));
        }
    }
}

/// Carries bytes one way until an end closes, then closes the other.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..read]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

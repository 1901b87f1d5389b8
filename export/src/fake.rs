//! A fake app for tests: a telemetry socket with threads, one pool and no ports. Its answers can be
//! delayed.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept,
    bind, listen, recv, send, shutdown, socket_with,
};

const BANNER: &str = r#"{"version":"DPDK 22.11.11","pid":1,"max_output_len":16384}"#;

const POOL: &str = r#"{"/mempool/info":{"name":"pool","pool_id":0,"flags":16,"socket_id":0,
    "size":100,"cache_size":0,"elt_size":64,"header_size":64,"trailer_size":0,
    "private_data_size":0,"ops_index":7,"populated_size":100,"total_cache_count":0,
    "common_pool_count":90}}"#;

/// Removed with everything that belongs to it when it is dropped, as an app that ends well does.
pub(crate) struct Fake {
    socket: PathBuf,
    listener: Arc<OwnedFd>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    rounds: AtomicUsize,
    delay_ms: AtomicU64,
    peers: Mutex<Vec<Arc<OwnedFd>>>,
}

impl Fake {
    /// An app with this file-prefix below `root`.
    pub(crate) fn start(root: &Path, name: &str) -> Self {
        let dir = root.join("dpdk").join(name);
        fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("dpdk_telemetry.v2");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        let fake = Self { socket, listener: Arc::new(listener), state: Arc::default() };
        let (listener, state) = (Arc::clone(&fake.listener), Arc::clone(&fake.state));
        thread::spawn(move || {
            while let Ok(peer) = accept(&*listener) {
                let (state, peer) = (Arc::clone(&state), Arc::new(peer));
                state.peers.lock().unwrap().push(Arc::clone(&peer));
                thread::spawn(move || state.serve(&peer));
            }
        });
        fake
    }

    /// From now on it takes that long to say how full its pool is.
    pub(crate) fn delay(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.state.delay_ms.store(delay, Ordering::SeqCst);
    }

    /// How often it was asked how full its pool is: once per round.
    pub(crate) fn rounds(&self) -> usize {
        self.state.rounds.load(Ordering::SeqCst)
    }
}

impl State {
    fn serve(&self, peer: &OwnedFd) {
        let say = |text: &str| send(peer, text.as_bytes(), SendFlags::NOSIGNAL);
        let mut buffer = [0; 1024];
        let mut alive = say(BANNER).is_ok();
        while alive {
            let bytes = recv(peer, &mut buffer, RecvFlags::empty()).map_or(0, |(bytes, _)| bytes);
            let request = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
            let reply = match request.split(',').next().unwrap_or_default() {
                "" => return,
                "/" => r#"{"/":["/","/ethdev/list","/mempool/list","/mempool/info"]}"#.to_owned(),
                "/ethdev/list" => r#"{"/ethdev/list":[]}"#.to_owned(),
                "/mempool/list" => r#"{"/mempool/list":["pool"]}"#.to_owned(),
                "/mempool/info" => {
                    self.rounds.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
                    POOL.to_owned()
                }
                command => format!("{{\"{command}\":null}}"),
            };
            alive = say(&reply).is_ok();
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = shutdown(&*self.listener, Shutdown::Both);
        let _ = fs::remove_file(&self.socket);
        for peer in self.state.peers.lock().unwrap().iter() {
            let _ = shutdown(peer, Shutdown::Both);
        }
    }
}

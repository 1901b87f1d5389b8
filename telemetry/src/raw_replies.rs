//! The last replies of apps, unparsed: kept only while they are displayed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::monotonic_ns;

/// Limit of the kept part of a reply, bytes.
const REPLY_BYTES: usize = 16 << 10;

/// Limit of all replies of an app, bytes.
const APP_BYTES: usize = 1 << 20;

/// Limit of the number of apps.
const APPS: usize = 64;

/// A reply of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReply {
    /// The kept part of the text; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Length of the whole reply, bytes.
    pub bytes: usize,
    /// Monotonic clock at the receipt, nanoseconds.
    pub monotonic_ns: u64,
}

/// The last reply to each request, by app and request.
pub type RepliesByApp = BTreeMap<String, BTreeMap<String, Arc<RawReply>>>;

/// The last replies of all apps. Shared by the threads that sample and the display.
#[derive(Debug, Default)]
pub struct RawReplies {
    wanted: AtomicBool,
    kept: Mutex<RepliesByApp>,
}

impl RawReplies {
    /// Keeps replies from now on, or discards them.
    pub fn want(&self, wanted: bool) {
        if self.wanted.swap(wanted, Ordering::Relaxed) && !wanted {
            self.kept().clear();
        }
    }

    /// Returns the replies that were received since they are kept.
    pub fn all(&self) -> RepliesByApp {
        self.kept().clone()
    }

    /// Returns a keeper for the replies of that app; `None` while they are not kept.
    pub(crate) fn keeper(self: &Arc<Self>, app: &str) -> Option<ReplyKeeper> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        wanted.then(|| ReplyKeeper { replies: Arc::clone(self), app: app.to_owned() })
    }

    fn kept(&self) -> MutexGuard<'_, RepliesByApp> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores the replies of one app.
#[derive(Clone, Debug)]
pub(crate) struct ReplyKeeper {
    replies: Arc<RawReplies>,
    app: String,
}

impl ReplyKeeper {
    /// Stores a reply in place of the last one to that request. If there is no room, neither is kept.
    pub(crate) fn keep(&self, request: &str, bytes: &[u8]) {
        let start = bytes.get(..REPLY_BYTES).unwrap_or(bytes);
        let reply = RawReply {
            text: String::from_utf8_lossy(start).into_owned(),
            bytes: bytes.len(),
            monotonic_ns: monotonic_ns(),
        };
        let mut kept = self.replies.kept();
        if kept.len() >= APPS && !kept.contains_key(&self.app) {
            return;
        }
        let of_app = kept.entry(self.app.clone()).or_default();
        let size = |(request, reply): (&String, &Arc<RawReply>)| request.len() + reply.text.len();
        let others = of_app.iter().filter(|(other, _)| *other != request).map(size).sum::<usize>();
        if others + request.len() + reply.text.len() <= APP_BYTES {
            of_app.insert(request.to_owned(), Arc::new(reply));
        } else {
            of_app.remove(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reply_to_each_request_is_kept_while_somebody_wants_it() {
        let replies = Arc::new(RawReplies::default());
        assert!(replies.keeper("fwd").is_none());
        replies.want(true);
        let keeper = replies.keeper("fwd").unwrap();
        keeper.keep("/a", b"1");
        keeper.keep("/a", b"\xff2");
        keeper.keep("/b", b"3");
        let all = replies.all();
        let texts: Vec<_> = all["fwd"].values().map(|reply| reply.text.as_str()).collect();
        assert_eq!(texts, ["\u{fffd}2", "3"]);
        assert_eq!(all["fwd"]["/a"].bytes, 2);
        replies.want(false);
        assert!(replies.all().is_empty());
    }

    #[test]
    fn a_reply_without_room_is_not_mistaken_for_the_last_one() {
        let replies = Arc::new(RawReplies::default());
        replies.want(true);
        let keeper = replies.keeper("fwd").unwrap();
        let long = vec![b'x'; REPLY_BYTES];
        keeper.keep("/a", b"short");
        for request in 0..APP_BYTES / REPLY_BYTES {
            keeper.keep(&request.to_string(), &long);
        }
        keeper.keep("/a", &long);
        assert!(!replies.all()["fwd"].contains_key("/a"));
    }

    #[test]
    fn memory_is_bounded() {
        let replies = Arc::new(RawReplies::default());
        replies.want(true);
        let long = vec![b'x'; 1 << 20];
        for app in 0..2 * APPS {
            let keeper = replies.keeper(&app.to_string()).unwrap();
            let requests = if app == 0 { 200 } else { 1 };
            for request in 0..requests {
                keeper.keep(&request.to_string(), &long);
            }
        }
        let all = replies.all();
        assert_eq!((all.len(), all["0"]["7"].bytes), (APPS, long.len()));
        let bytes: usize = all["0"].values().map(|reply| reply.text.len()).sum();
        assert!(bytes <= APP_BYTES && all["0"].len() > 32, "{bytes}");
    }
}

//! Holders as text.

use std::fmt;

use crate::report::Holder;

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RxQueue { port, queue } => write!(f, "RX queue {queue} of port {port}"),
            Self::TxQueue { port, queue } => write!(f, "TX queue {queue} of port {port}"),
            Self::PortDriver { port } => write!(f, "driver of port {port}"),
            Self::Ring { name, used, capacity } => {
                write!(f, "rte_ring {name}: {} of {}", Count(*used), Count(*capacity))
            }
            Self::Memzone { name } => write!(f, "memzone {name}"),
            Self::Structure { library, name: Some(name) } => write!(f, "{library} {name}"),
            Self::Structure { library, name: None } => write!(f, "table of {library}"),
            Self::Global { symbol, module, place } => {
                let symbol = symbol.as_deref().unwrap_or("without a symbol");
                write!(f, "global {symbol} in {module}")?;
                place.as_ref().map_or(Ok(()), |place| write!(f, " ({place})"))
            }
            Self::HeapElement { bytes, socket } => {
                write!(f, "heap element of {} bytes", Count(*bytes))?;
                if *socket >= 0 { write!(f, " on socket {socket}") } else { Ok(()) }
            }
            Self::ProcessHeap => write!(f, "heap of the process"),
            Self::Stack { thread } => write!(f, "stack of thread {thread}"),
            Self::ThreadLocal { thread, symbol: Some(symbol) } => {
                write!(f, "thread-local {symbol} of thread {thread}")
            }
            Self::ThreadLocal { thread, symbol: None } => {
                write!(f, "thread-local storage of thread {thread}")
            }
            Self::Mbuf => write!(f, "another mbuf"),
            Self::Mapping { path } => write!(f, "mapping {path}"),
        }
    }
}

/// A number with thousands separators.
struct Count(u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && digits.len().saturating_sub(index).is_multiple_of(3) {
                write!(f, ",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_read_as_people_say_them() {
        let text = |holder: Holder| holder.to_string();
        assert_eq!(text(Holder::RxQueue { port: 0, queue: 2 }), "RX queue 2 of port 0");
        let ring = Holder::Ring { name: "backlog".into(), used: 1500, capacity: 1_048_575 };
        assert_eq!(text(ring), "rte_ring backlog: 1,500 of 1,048,575");
        let table = |place: Option<&str>| Holder::Global {
            symbol: Some("held_table".into()),
            module: "leaky".into(),
            place: place.map(Into::into),
        };
        assert_eq!(text(table(Some("leaky.c:14"))), "global held_table in leaky (leaky.c:14)");
        assert_eq!(text(table(None)), "global held_table in leaky");
        let element = |socket| Holder::HeapElement { bytes: 4096, socket };
        assert_eq!(text(element(0)), "heap element of 4,096 bytes on socket 0");
        assert_eq!(text(element(-1)), "heap element of 4,096 bytes");
        let local = |symbol: Option<&str>| Holder::ThreadLocal {
            thread: "rte-worker-1".into(),
            symbol: symbol.map(Into::into),
        };
        assert_eq!(text(local(None)), "thread-local storage of thread rte-worker-1");
        assert_eq!(text(local(Some("spare"))), "thread-local spare of thread rte-worker-1");
    }
}

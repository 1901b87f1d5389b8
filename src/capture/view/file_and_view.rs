//! Prints packets while they are written to a file.

use pmdscope_packets::{
    CaptureInterface, InterfaceStatistics, Packet, PacketSink, SectionOrigin, SinkError,
    SinkProgress,
};

use crate::output::say;

/// The file is what the capture is about, and goes on when the view cannot.
#[derive(Debug)]
pub(super) struct FileAndView {
    pub(super) file: Box<dyn PacketSink>,
    pub(super) view: Option<Box<dyn PacketSink>>,
}

impl FileAndView {
    /// Does something with the view, if it is still there.
    fn view(&mut self, act: impl FnOnce(&mut dyn PacketSink) -> Result<(), SinkError>) {
        let Some(view) = &mut self.view else { return };
        if act(&mut **view).is_err() || view.done() {
            self.close_view();
        }
    }

    fn close_view(&mut self) {
        let Some(mut view) = self.view.take() else { return };
        match view.finish() {
            Ok(()) | Err(SinkError::Closed { .. }) => {}
            Err(error) => {
                let error = anyhow::Error::from(error);
                say(format_args!("pmdscope: no more packets are shown: {error:#}"));
            }
        }
    }
}

impl PacketSink for FileAndView {
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError> {
        self.view(|view| view.section(origin));
        self.file.section(origin)
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        self.view(|view| view.interface(interface));
        self.file.interface(interface)
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        if let Some(view) = &mut self.view
            && view.packet(packet).is_err()
        {
            self.close_view();
        }
        self.file.packet(packet)
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        self.file.counters(statistics);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.view(|view| view.flush());
        self.file.flush()
    }

    fn done(&mut self) -> bool {
        self.view(|_| Ok(()));
        self.file.done()
    }

    fn progress(&self) -> SinkProgress {
        self.file.progress()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let finished = self.file.finish();
        self.close_view();
        finished
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Counts packets; breaks at the given one.
    #[derive(Debug)]
    struct Counting {
        packets: Arc<Mutex<u64>>,
        breaks_at: u64,
    }

    impl PacketSink for Counting {
        fn section(&mut self, _: &SectionOrigin) -> Result<(), SinkError> {
            Ok(())
        }

        fn interface(&mut self, _: &CaptureInterface) -> Result<(), SinkError> {
            Ok(())
        }

        fn packet(&mut self, _: &Packet<'_>) -> Result<(), SinkError> {
            *self.packets.lock().unwrap() += 1;
            Ok(())
        }

        fn counters(&mut self, _: &[InterfaceStatistics]) {}

        fn flush(&mut self) -> Result<(), SinkError> {
            Ok(())
        }

        fn done(&mut self) -> bool {
            *self.packets.lock().unwrap() >= self.breaks_at
        }

        fn progress(&self) -> SinkProgress {
            SinkProgress { written: *self.packets.lock().unwrap(), ..SinkProgress::default() }
        }

        fn finish(&mut self) -> Result<(), SinkError> {
            let source = std::io::Error::other("broken");
            let broken = SinkError::Write { name: "view".to_owned(), source };
            if self.done() { Err(broken) } else { Ok(()) }
        }
    }

    #[test]
    fn the_file_goes_on_without_the_view() {
        let counts = [Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0))];
        let target = |index: usize, breaks_at| -> Box<dyn PacketSink> {
            Box::new(Counting { packets: Arc::clone(&counts[index]), breaks_at })
        };
        let mut both = FileAndView { file: target(0, u64::MAX), view: Some(target(1, 3)) };
        let packet = Packet {
            interface: 0,
            ns: 0,
            data: &[],
            len: 0,
            dir: 0,
            queue: None,
            lcore: None,
            weight: 1,
            dropped: 0,
            id: 0,
            comment: "",
            options: &[],
        };
        for _ in 0..10 {
            both.packet(&packet).unwrap();
            assert!(!both.done());
        }
        assert!(both.view.is_none());
        both.finish().unwrap();
        assert_eq!(both.progress().written, 10);
        assert_eq!((*counts[0].lock().unwrap(), *counts[1].lock().unwrap()), (10, 3));
    }
}

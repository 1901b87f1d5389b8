//! Tests of recorders with random sequences of events, compared with a simple model.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Packet {
        later: u64,
        dropped: u64,
        size: usize,
    },
    Section,
    /// Nanoseconds before the newest packet.
    Trigger(u64),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        30 => (0..4u64, prop_oneof![4 => Just(0), 1 => 1..9u64], 0..60usize)
            .prop_map(|(later, dropped, size)| Step::Packet { later, dropped, size }),
        1 => Just(Step::Section),
        1 => (0..60u64).prop_map(Step::Trigger),
        2 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 0..400)
}

/// The model: a list of all packets, of which each file has a part.
#[derive(Default)]
struct Model {
    all: Vec<(usize, Owned)>,
    section: usize,
    open: Option<Open>,
    files: Vec<Vec<(usize, Owned)>>,
}

/// An open file: its times and packets.
struct Open {
    start: u64,
    first: u64,
    end: u64,
    taken: Vec<(usize, Owned)>,
}

impl Model {
    fn trigger(&mut self, moment: u64, before: u64, after: u64) {
        self.open.take_if(|open| moment > open.first + 10 * after).into_iter().for_each(|open| {
            self.files.push(open.taken);
        });
        if let Some(open) = &mut self.open {
            open.end = open.end.max((moment + after).min(open.first + 10 * after));
            return;
        }
        let (start, end) = (moment - before, moment + after);
        let within = |(_, packet): &&(usize, Owned)| (start..=end).contains(&packet.ns);
        let taken = self.all.iter().filter(within).cloned().collect();
        if self.all.last().is_some_and(|(_, packet)| packet.ns > end) {
            self.files.push(taken);
        } else {
            self.open = Some(Open { start, first: moment, end, taken });
        }
    }

    fn packet(&mut self, packet: Owned) {
        if let Some(open) = self.open.take_if(|open| packet.ns > open.end) {
            self.files.push(open.taken);
        }
        if let Some(open) = self.open.as_mut().filter(|open| packet.ns >= open.start) {
            open.taken.push((self.section, packet.clone()));
        }
        self.all.push((self.section, packet));
    }
}

proptest! {
    #[test]
    fn files_have_what_a_list_of_all_packets_gives(
        steps in steps(),
        before in 0..100u64,
        after in 0..30u64,
    ) {
        let (mut recorder, fire, disk) = recorder(settings(before, after));
        let mut model = Model::default();
        let (mut now, mut id) = (1000, 0);
        for step in steps {
            match step {
                Step::Packet { later, dropped, size } => {
                    now += later;
                    let data = vec![id as u8; size];
                    let packet = Owned { id, dropped, data, len: size as u32, ..at(now) };
                    id += 1;
                    recorder.packet(&packet.packet()).unwrap();
                    model.packet(packet);
                }
                Step::Section => {
                    model.section += 1;
                    section(&mut recorder, &model.section.to_string());
                }
                Step::Trigger(ago) => {
                    fire.fire(trigger("stall", now - ago));
                    recorder.flush().unwrap();
                    settle(&recorder);
                    model.trigger(BASE + now - ago, before, after);
                }
                Step::Flush => recorder.flush().unwrap(),
            }
        }
        recorder.finish().unwrap();
        model.files.extend(model.open.take().map(|open| open.taken));
        let files = disk.files();
        prop_assert_eq!(files.len(), model.files.len());
        for (seen, expected) in files.iter().zip(&model.files) {
            prop_assert!(seen.complete);
            let plain = |packet: &Owned| Owned { comment: String::new(), ..packet.clone() };
            let found = seen.packets.iter().map(|(_, packet)| plain(packet)).collect::<Vec<_>>();
            let wanted = expected.iter().map(|(_, packet)| packet.clone()).collect::<Vec<_>>();
            prop_assert_eq!(found, wanted);
            // Sections are numbered from 0 in each file, and named by their numbers.
            for ((number, _), (section, _)) in seen.packets.iter().zip(expected) {
                let name = &seen.sections[*number].0;
                let expected = if *section == 0 { "first".to_owned() } else { section.to_string() };
                prop_assert_eq!(name, &expected);
            }
        }
    }
}

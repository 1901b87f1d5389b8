//! Tests with a model of a NIC that steers flows, instead of hardware.

use std::cell::{Cell, RefCell};

use super::*;

#[derive(Default)]
struct FakeNic {
    rules: RefCell<Vec<(u32, SteeringRule)>>,
    enabled: Cell<bool>,
    table: RefCell<Vec<u32>>,
    /// Number of changes that succeed before all further ones fail; unlimited if `None`.
    budget: Cell<Option<u32>>,
    refuses_ipv6: bool,
}

impl FakeNic {
    fn spend(&self) -> io::Result<()> {
        match self.budget.get() {
            Some(0) => Err(Errno::IO.into()),
            Some(left) => {
                self.budget.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn look(&self) -> (Vec<(u32, SteeringRule)>, bool, Vec<u32>) {
        (self.rules.borrow().clone(), self.enabled.get(), self.table.borrow().clone())
    }
}

impl Nic for FakeNic {
    fn rx_queues(&self) -> Option<u32> {
        Some(4)
    }

    fn rules(&self) -> io::Result<Vec<u32>> {
        Ok(self.rules.borrow().iter().map(|(location, _)| *location).collect())
    }

    fn has_rule(&self, location: u32, rule: &SteeringRule) -> io::Result<bool> {
        Ok(self.rules.borrow().contains(&(location, rule.clone())))
    }

    fn add_rule(&self, rule: &SteeringRule) -> io::Result<()> {
        self.spend()?;
        if self.refuses_ipv6 && rule.ipv6 {
            return Err(Errno::OPNOTSUPP.into());
        }
        let location = 100 + u32::try_from(self.rules.borrow().len()).unwrap();
        self.rules.borrow_mut().push((location, rule.clone()));
        Ok(())
    }

    fn remove_rule(&self, location: u32) -> io::Result<()> {
        self.spend()?;
        self.rules.borrow_mut().retain(|(other, _)| *other != location);
        Ok(())
    }

    fn steering_enabled(&self) -> io::Result<bool> {
        Ok(self.enabled.get())
    }

    fn enable_steering(&self, enable: bool) -> io::Result<()> {
        self.spend()?;
        self.enabled.set(enable);
        Ok(())
    }

    fn rss_table(&self) -> io::Result<Vec<u32>> {
        Ok(self.table.borrow().clone())
    }

    fn set_rss_table(&self, table: &[u32]) -> io::Result<()> {
        self.spend()?;
        *self.table.borrow_mut() = table.to_vec();
        Ok(())
    }
}

fn flows() -> Vec<BypassFlow> {
    vec!["udp:53".parse().unwrap(), "tcp:853".parse().unwrap()]
}

fn nic() -> FakeNic {
    let foreign = SteeringRule { flow: "udp:53".parse().unwrap(), ipv6: false, queue: 1 };
    let nic = FakeNic { table: RefCell::new(vec![0, 1, 2, 3, 0, 1, 2, 3]), ..FakeNic::default() };
    nic.rules.borrow_mut().push((7, foreign));
    nic
}

#[test]
fn flows_are_steered_to_the_queue_and_all_else_elsewhere() {
    let nic = nic();
    let before = nic.look();
    let steering = survey(&nic, 2);
    assert_eq!(missing(&nic, &steering, &flows(), 2).len(), 5);
    apply(&nic, &steering, &flows(), 2).unwrap();
    assert_eq!(nic.table.borrow()[..], [0, 1, 0, 3, 0, 1, 1, 3]);
    assert!(nic.enabled.get());
    assert_eq!(nic.rules.borrow().len(), 5);
    assert_eq!(missing(&nic, &steering, &flows(), 2), [""; 0]);
    // The second call changes nothing.
    apply(&nic, &steering, &flows(), 2).unwrap();
    assert_eq!(nic.rules.borrow().len(), 5);
    assert_eq!(undo(&nic, &steering, &flows(), 2), [""; 0]);
    assert_eq!(nic.look(), before);
    assert_eq!(undo(&nic, &steering, &flows(), 2), [""; 0]);
}

#[test]
fn a_command_killed_at_any_point_can_be_undone() {
    let all = 6;
    for changes in 0..=all {
        let nic = nic();
        let before = nic.look();
        let steering = survey(&nic, 2);
        nic.budget.set(Some(changes));
        assert_eq!(apply(&nic, &steering, &flows(), 2).is_ok(), changes == all);
        nic.budget.set(None);
        assert_eq!(undo(&nic, &steering, &flows(), 2), [""; 0]);
        assert_eq!(nic.look(), before, "after {changes} changes");
    }
}

#[test]
fn what_a_nic_refuses_is_undone_at_once_and_told() {
    let mut nic = nic();
    nic.refuses_ipv6 = true;
    let before = nic.look();
    let steering = survey(&nic, 2);
    let reason = apply(&nic, &steering, &flows(), 2).unwrap_err();
    assert_eq!(reason, "the driver has no ntuple filters");
    assert_eq!(nic.look(), before);
}

#[test]
fn a_table_of_one_queue_stays() {
    assert_eq!(without(&[0, 0], 0), None);
    assert_eq!(without(&[], 0), Some(Vec::new()));
    assert_eq!(without(&[0, 1, 2], 5), Some(vec![0, 1, 2]));
}

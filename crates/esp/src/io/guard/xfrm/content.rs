//! The rules of policies in a table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, CString};
use std::io;
use std::ops::Bound;

use super::super::batch::Batch;
use super::super::expressions::Expressions;
use super::super::transactions::Transactions;
use super::chains::{self, Abilities, LEAVE_CLEAR, XfrmGuardOptions};
use super::shape::{Comment, Leaving, Shape, Verdict};

/// Octets of a message beside the expressions of its rule, with its comment, and of a message that removes a rule or a set.
const MESSAGE: usize = 288;

/// What is in a table of the kernel.
#[derive(Debug)]
pub(super) struct Content {
    table: &'static CStr,
    rules: BTreeMap<Shape, Rule>,
    /// Handles of the rules that do not depend on policies.
    fixed: Vec<u64>,
    /// Sets made so far, whose names have numbers.
    sets: u64,
}

/// A rule of the kernel's.
#[derive(Debug)]
struct Rule {
    /// `None` until the kernel has told it.
    handle: Option<u64>,
    /// `None` if the rule is for all packets of its shape.
    set: Option<CString>,
    /// How many policies have each value.
    values: HashMap<Vec<u8>, u32>,
}

/// A change of a policy: before, and after that.
pub(super) type Change = (Leaving, Option<Verdict>, Option<Verdict>);

/// What changes of policies make of the rules, in one transaction.
#[derive(Debug, Default)]
struct Work {
    /// New rules.
    made: BTreeMap<Shape, Expressions>,
    /// Those that may have lost their last policy.
    touched: BTreeSet<Shape>,
    /// Octets of the messages about both.
    octets: usize,
}

impl Content {
    /// Nothing, for a table that is made again.
    pub(super) fn new(table: &'static CStr) -> Self {
        Self { table, rules: BTreeMap::new(), fixed: Vec::new(), sets: 0 }
    }

    /// Makes the table again, with these policies. It is in force once it has all of them.
    pub(super) fn make(
        &mut self,
        transactions: &mut Transactions,
        (options, abilities): (&XfrmGuardOptions, Abilities),
        policies: &[Change],
    ) -> io::Result<()> {
        *self = Self::new(self.table);
        let mut batch = transactions.begin();
        chains::write(&mut batch, self.table, options, abilities);
        self.put(transactions, batch, policies, Some(options))
    }

    /// True if [`make`](Self::make) takes one transaction.
    pub(super) fn fits(
        transactions: &Transactions,
        (options, abilities): (&XfrmGuardOptions, Abilities),
        policies: &[Change],
    ) -> bool {
        let mut draft = Self::new(chains::TABLE);
        let mut batch = transactions.begin();
        chains::write(&mut batch, draft.table, options, abilities);
        draft.fill(&mut batch, policies).1.is_empty()
    }

    /// Changes policies, in as many transactions as are needed. A policy changes in one.
    pub(super) fn change(
        &mut self,
        transactions: &mut Transactions,
        changes: &[Change],
    ) -> io::Result<()> {
        let batch = transactions.begin();
        self.put(transactions, batch, changes, None)
    }

    /// True if the kernel has the rules of this, and they are in force.
    pub(super) fn is_in(&self, transactions: &mut Transactions) -> io::Result<bool> {
        let policies = self.rules.values().filter_map(|rule| rule.handle);
        let handles: BTreeSet<u64> = self.fixed.iter().copied().chain(policies).collect();
        let there: BTreeSet<u64> = transactions.rules(self.table)?.into_iter().collect();
        Ok(there == handles && !transactions.is_dormant(self.table)?)
    }

    /// True if the kernel has the values of all sets of this.
    pub(super) fn has_values(&self, transactions: &mut Transactions) -> io::Result<bool> {
        for Rule { set, values, .. } in self.rules.values() {
            let Some(set) = set else { continue };
            let there = transactions.values(self.table, set)?;
            if there.len() != values.len() || !there.iter().all(|value| values.contains_key(value))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn put(
        &mut self,
        transactions: &mut Transactions,
        mut batch: Batch,
        changes: &[Change],
        hooks: Option<&XfrmGuardOptions>,
    ) -> io::Result<()> {
        let mut rest = changes;
        loop {
            // Those of the rules that do not depend on policies.
            let fixed = batch.rules();
            let (work, behind) = self.fill(&mut batch, rest);
            self.write_rules(&mut batch, &work.made);
            self.remove_empty(&mut batch, &work.touched)?;
            if let Some(options) = hooks.filter(|_| behind.is_empty()) {
                chains::hooks(&mut batch, self.table, options);
            }
            let count = batch.rules();
            let mut handles = transactions.commit(batch)?;
            if handles.len() != count {
                return Err(untold());
            }
            let more = handles.split_off(fixed);
            self.fixed.append(&mut handles);
            let mut more = more.into_iter();
            for (shape, handle) in work.made.keys().zip(more.by_ref()) {
                if let Some(rule) = self.rules.get_mut(shape) {
                    rule.handle = Some(handle);
                }
            }
            self.fixed.extend(more);
            rest = behind;
            if rest.is_empty() {
                return Ok(());
            }
            batch = transactions.begin();
        }
    }

    /// Writes as many changes as fit into a transaction, and the sets that they need. Returns the others.
    fn fill<'a>(&mut self, batch: &mut Batch, changes: &'a [Change]) -> (Work, &'a [Change]) {
        let (mut work, mut rest) = (Work::default(), changes);
        while let Some((change, others)) =
            rest.split_first().filter(|_| !batch.is_full(work.octets))
        {
            self.write(batch, change, &mut work);
            rest = others;
        }
        (work, rest)
    }

    fn write(&mut self, batch: &mut Batch, change: &Change, work: &mut Work) {
        let (policy, before, after) = change;
        let [before, after] =
            [before, after].map(|verdict| verdict.and_then(|verdict| Shape::of(policy, verdict)));
        if before == after {
            return;
        }
        if let Some(shape) = after {
            self.add(batch, policy, shape, work);
        }
        if let Some(shape) = before
            && let Some(rule) = self.rules.get_mut(&shape)
        {
            let value = shape.value(policy);
            let count = rule.values.entry(value.clone()).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                rule.values.remove(&value);
                work.touched.insert(shape);
                work.octets += 2 * MESSAGE;
                if let Some(set) = &rule.set {
                    batch.del_value(self.table, set, &value);
                }
            }
        }
    }

    fn add(&mut self, batch: &mut Batch, policy: &Leaving, shape: Shape, work: &mut Work) {
        let Self { table, rules, sets, .. } = self;
        let value = shape.value(policy);
        let rule = rules.entry(shape).or_insert_with(|| {
            let set = (!value.is_empty()).then(|| {
                *sets += 1;
                let name = set_name(*sets);
                batch.new_set(table, &name, shape.kind(policy), value.len() as u32);
                name
            });
            let expressions = shape.rule(policy, set.as_deref());
            work.octets += MESSAGE + expressions.octets().len();
            work.made.insert(shape, expressions);
            Rule { handle: None, set, values: HashMap::new() }
        });
        let count = rule.values.entry(value.clone()).or_default();
        *count += 1;
        if let Some(set) = rule.set.as_ref().filter(|_| *count == 1) {
            batch.add_value(table, set, &value);
        }
    }

    /// Writes new rules in their order, each before the next one that the kernel has.
    fn write_rules(&self, batch: &mut Batch, made: &BTreeMap<Shape, Expressions>) {
        for (shape, expressions) in made {
            let behind = self.rules.range((Bound::Excluded(*shape), Bound::Unbounded));
            let next = behind.filter_map(|(_, rule)| rule.handle).next();
            let set = self.rules.get(shape).and_then(|rule| rule.set.as_deref());
            let comment = Comment(*shape, set).to_string();
            batch.rule_with_comment(self.table, LEAVE_CLEAR, expressions, next, &comment);
        }
    }

    /// Removes the rules and the sets of shapes that no policy has any more.
    fn remove_empty(&mut self, batch: &mut Batch, touched: &BTreeSet<Shape>) -> io::Result<()> {
        for shape in touched {
            if self.rules.get(shape).is_none_or(|rule| !rule.values.is_empty()) {
                continue;
            }
            let Some(Rule { handle, set, .. }) = self.rules.remove(shape) else { continue };
            // Without a handle all rules would be meant.
            batch.del_rule(self.table, LEAVE_CLEAR, Some(handle.ok_or_else(untold)?));
            if let Some(set) = set {
                batch.del_set(self.table, &set);
            }
        }
        Ok(())
    }
}

/// The policies of a table that do not let pass, with their priority; as a run of this program has left the table.
pub(super) fn blocks(
    transactions: &mut Transactions,
    table: &CStr,
) -> io::Result<Vec<(Leaving, u32)>> {
    let mut all = Vec::new();
    for comment in transactions.comments(table)? {
        let Some((shape, set)) = Shape::read(&comment) else {
            tracing::debug!(comment, "nf_tables: a rule of an earlier run is not understood");
            continue;
        };
        let values = match set {
            Some(set) => transactions.values(table, &set)?,
            None => vec![Vec::new()],
        };
        all.extend(shape.blocks(&values));
    }
    Ok(all)
}

fn untold() -> io::Error {
    io::Error::other("the kernel has not told the handles of the rules")
}

fn set_name(number: u64) -> CString {
    CString::new(format!("s{number}")).unwrap_or_default()
}

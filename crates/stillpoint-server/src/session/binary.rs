//! The binary protocol.

use super::{Close, Context, Session, Step, body::Then, lookup::Lookup, stats};
use crate::{
    protocol::{
        self,
        binary::{HEADER, Header, Operation, Status, u32_at, u64_at},
    },
    store::{Arithmetic, Condition, Outcome, Refused},
};

/// Length of the longest extras, in bytes.
const MAX_EXTRAS: usize = 20;

impl Session {
    pub(super) fn binary(&mut self, input: &[u8], cx: &mut Context<'_>) -> Step {
        if input[0] != protocol::binary::REQUEST {
            self.close = Some(Close::Error);
            return Step::Partial;
        }
        let Some(header) = Header::parse(input) else {
            return Step::Partial;
        };
        let (key, extras) = (usize::from(header.key), usize::from(header.extras));
        let body = header.body as usize;
        let Some((operation, quiet)) = Operation::of(header.opcode) else {
            respond(&header, Status::UnknownCommand, 0, cx);
            self.begin(cx);
            self.skip(body as u64);
            return Step::Consumed(HEADER);
        };
        // Lengths that contradict each other leave no way to find the next request.
        if key > protocol::MAX_KEY || extras > MAX_EXTRAS || !operation.fits(extras, key, body) {
            respond(&header, Status::Invalid, 0, cx);
            self.close = Some(Close::Error);
            return Step::Consumed(HEADER);
        }
        let head = HEADER + extras + key;
        if input.len() < head {
            return Step::Partial;
        }
        self.begin(cx);
        if !super::reserve(&mut self.close, cx) {
            return Step::Partial;
        }
        let request = Request {
            header,
            extras: &input[HEADER..HEADER + extras],
            key: &input[HEADER + extras..head],
            value: body - extras - key,
            quiet,
        };
        let used = self.operation(operation, &request, &input[head..], cx);
        Step::Consumed(head + used)
    }

    fn operation(
        &mut self,
        operation: Operation,
        request: &Request<'_>,
        behind: &[u8],
        cx: &mut Context<'_>,
    ) -> usize {
        let header = &request.header;
        match operation {
            Operation::Store(mode) => {
                let (flags, deadline) = (u32_at(request.extras, 0), request.deadline(4, cx));
                let then = Then::Binary {
                    header: request.header,
                    mode,
                    quiet: request.quiet,
                };
                let (key, len) = (request.key, request.value);
                return self.accept(key, flags, deadline, len, then, behind, cx);
            }
            Operation::Get { key } => self.binary_get(request, key, None, true, cx),
            Operation::GetAndTouch { key } => {
                self.binary_get(request, key, Some(request.deadline(0, cx)), true, cx);
            }
            Operation::Touch => {
                self.binary_get(request, false, Some(request.deadline(0, cx)), false, cx);
            }
            Operation::Delete => {
                let compare = (header.cas != 0).then_some(header.cas);
                let deleted = self.delete(request.key, compare, cx);
                finish(request, deleted.map(|()| 0), cx);
            }
            Operation::Arithmetic { down } => self.binary_arithmetic(request, down, cx),
            Operation::Flush => {
                if cx.shared.settings.flush {
                    self.flush(u32_at(request.extras, 0).cast_signed().into(), cx);
                    finish(request, Ok(0), cx);
                } else {
                    respond(header, Status::AuthError, 0, cx);
                }
            }
            Operation::Quit => {
                finish(request, Ok(0), cx);
                self.close = Some(Close::Normal);
            }
            Operation::Noop | Operation::Verbosity => respond(header, Status::Ok, 0, cx),
            Operation::Version => {
                with_body(header, Status::Ok, [b"", crate::VERSION.as_bytes()], 0, cx);
            }
            Operation::Stat => self.binary_stat(request, cx),
        }
        0
    }

    fn binary_get(
        &mut self,
        request: &Request<'_>,
        with_key: bool,
        deadline: Option<u32>,
        with_value: bool,
        cx: &mut Context<'_>,
    ) {
        let (header, directory) = (&request.header, cx.directory);
        let space = directory.route(&self.access.home, request.key);
        let key: &[u8] = if with_key { request.key } else { b"" };
        let lookup = Lookup {
            space,
            key: request.key,
            uses: true,
            value_end: with_value.then_some(b""),
            deadline,
        };
        let mark = cx.out.mark();
        let shown = lookup.show(cx, |item, bytes| {
            let len = if with_value { item.value().len() } else { 0 };
            header.push_response(bytes, Status::Ok, [4, key.len(), len], item.cas());
            bytes.extend_from_slice(&item.flags().to_be_bytes());
            bytes.extend_from_slice(key);
        });
        let instead = lookup.finish(shown, deadline.is_some(), self, cx);
        if with_value {
            space.details.get(request.key, shown.is_some());
        }
        if let Some(instead) = instead {
            cx.out.truncate(mark);
            return respond(header, instead.status, 0, cx);
        }
        match shown {
            Some(_) => {}
            None if request.quiet => {}
            None if with_key => with_body(header, Status::NotFound, [key, b""], 0, cx),
            None => respond(header, Status::NotFound, 0, cx),
        }
    }

    fn binary_arithmetic(&mut self, request: &Request<'_>, down: bool, cx: &mut Context<'_>) {
        let (delta, initial) = (u64_at(request.extras, 0), u64_at(request.extras, 8));
        let exptime = u32_at(request.extras, 16);
        let what = Arithmetic {
            delta,
            decrement: down,
            // All ones: only if it is there.
            initial: (exptime != u32::MAX).then(|| (initial, request.deadline(16, cx))),
            exptime: None,
            condition: Condition::of((request.header.cas != 0).then_some(request.header.cas)),
        };
        match self.arithmetic(request.key, what, cx) {
            Ok(_) if request.quiet => {}
            Ok(done) => {
                let parts = [b"", &done.value.to_be_bytes()[..]];
                with_body(&request.header, Status::Ok, parts, done.cas, cx);
            }
            Err(outcome) => respond(&request.header, status(&outcome), 0, cx),
        }
    }

    fn binary_stat(&mut self, request: &Request<'_>, cx: &mut Context<'_>) {
        cx.work.end();
        let words = protocol::text::Words::of(request.key);
        match stats::collect(self, words.as_slice(), cx) {
            Some(lines) => {
                for (name, value) in lines {
                    let parts = [name.as_bytes(), value.as_bytes()];
                    with_body(&request.header, Status::Ok, parts, 0, cx);
                }
                respond(&request.header, Status::Ok, 0, cx);
            }
            None => respond(&request.header, Status::NotFound, 0, cx),
        }
    }
}

/// A request whose head has arrived.
struct Request<'a> {
    header: Header,
    extras: &'a [u8],
    key: &'a [u8],
    /// The value's length.
    value: usize,
    quiet: bool,
}

impl Request<'_> {
    /// Returns the second in which an item expires, of the time in the extras at `at`.
    fn deadline(&self, at: usize, cx: &Context<'_>) -> u32 {
        cx.deadline(u32_at(self.extras, at).cast_signed().into())
    }
}

/// Answers without a body, or an error with its text.
pub(super) fn respond(header: &Header, status: Status, cas: u64, cx: &mut Context<'_>) {
    with_body(header, status, [b"", status.text().as_bytes()], cas, cx);
}

/// Answers with a key and a value.
fn with_body(header: &Header, status: Status, parts: [&[u8]; 2], cas: u64, cx: &mut Context<'_>) {
    let [key, value] = parts;
    header.push_response(&mut cx.out.bytes, status, [0, key.len(), value.len()], cas);
    cx.out.bytes.extend_from_slice(key);
    cx.out.bytes.extend_from_slice(value);
}

fn finish(request: &Request<'_>, result: Result<u64, Outcome>, cx: &mut Context<'_>) {
    match result {
        Ok(_) if request.quiet => {}
        Ok(cas) => respond(&request.header, Status::Ok, cas, cx),
        Err(outcome) => respond(&request.header, status(&outcome), 0, cx),
    }
}

pub(super) fn status(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::NotStored => Status::NotStored,
        Outcome::Exists => Status::Exists,
        Outcome::NotFound => Status::NotFound,
        Outcome::NotANumber => Status::NotANumber,
        Outcome::Refused(Refused::TooLarge { .. }) => Status::TooLarge,
        _ => Status::OutOfMemory,
    }
}

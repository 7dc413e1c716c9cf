//! Output: bytes, and values that stay where they lie until they are sent.

use crate::store::{Item, Pin, add_work};
use std::{collections::VecDeque, io::IoSlice};

/// Longest value, in bytes, that is copied inside the section; a longer one is pinned, if it may be.
const PIN_MIN: usize = 4096;
/// Longest value, in bytes, whose pin ends with the turn: its segment has other items too. A longer
/// value is alone in its segment, so a pin keeps nothing else.
const COPY_MAX: usize = 32 << 10;
/// From this on no further request is executed before these responses have been sent.
const FULL: usize = 64 << 10;
/// Bytes of a response beside its value: a key, a line of flags, numbers.
const ROOM_BESIDE: usize = 1024;
const ROOM: usize = COPY_MAX + ROOM_BESIDE;
/// Bytes that an answer counts where answers that wait to be sent have a limit.
pub(crate) const ANSWER: usize = 5 << 10;

/// Bytes and values that have to be sent.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Values that are sent before `bytes` at these positions, and have not been sent.
    pins: VecDeque<(usize, Pin)>,
    pinned: usize,
    /// The part of `pinned` whose pins end with the turn, in bytes.
    briefly: usize,
    /// Bytes of `bytes` that have been sent.
    sent: usize,
    /// Bytes of the first pin that have been sent.
    sent_of_pin: usize,
    /// How many more answers there is room for until these have been sent, and how many at first.
    room: u32,
    most: u32,
    /// Where the last of them begins. One that has nothing leaves its room to the next.
    last: Option<usize>,
}

/// Without a limit of answers.
impl Default for Output {
    fn default() -> Self {
        Self::with_limit(u32::MAX)
    }
}

/// Why there is no room for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The system has no memory.
    Memory,
    /// No more answers may wait to be sent.
    Limit,
}

/// How a value is sent.
#[derive(Debug)]
pub(crate) enum Held {
    /// As bytes among the others.
    Copy,
    /// From where it lies.
    Pin(Pin),
}

/// Where an output was, to go back to as long as nothing has been sent since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(usize);

impl Output {
    /// Returns an empty output that takes `most` answers until they have been sent.
    pub(crate) fn with_limit(most: u32) -> Self {
        Self {
            bytes: Vec::new(),
            pins: VecDeque::new(),
            pinned: 0,
            briefly: 0,
            sent: 0,
            sent_of_pin: 0,
            room: most,
            most,
            last: None,
        }
    }

    /// Returns an empty output with the same limit.
    pub(crate) fn fresh(&self) -> Self {
        Self::with_limit(self.most)
    }

    /// Makes room for a response, so that no allocation happens inside a section.
    #[inline]
    pub(crate) fn reserve(&mut self) -> Result<(), NoRoom> {
        let begins = Some(self.bytes.len());
        if self.last != begins {
            self.room = self.room.checked_sub(1).ok_or(NoRoom::Limit)?;
            self.last = begins;
        }
        if self.bytes.capacity() - self.bytes.len() >= ROOM
            && self.pins.capacity() > self.pins.len()
        {
            return Ok(());
        }
        let memory = self.bytes.try_reserve(ROOM);
        let memory = memory.is_ok() && self.pins.try_reserve(1).is_ok();
        if memory { Ok(()) } else { Err(NoRoom::Memory) }
    }

    /// Reserves room for a key of a `get`. As in memcached, each takes room, also one that is not there.
    #[inline]
    pub(crate) fn reserve_for_key(&mut self) -> Result<(), NoRoom> {
        self.last = None;
        self.reserve()
    }

    /// Makes room for other answers, as those before have been sent or go on elsewhere.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        self.room = self.most;
        self.last = None;
    }

    /// Returns how the value of an item will be sent; [`Output::reserve`] has made room. `None` if it
    /// is longer than [`COPY_MAX`], may not be pinned, and there is no room for a copy: see
    /// [`Output::reserve_copy`].
    #[inline]
    pub(crate) fn hold(&self, item: &Item<'_>) -> Option<Held> {
        let len = item.value().len();
        if len <= PIN_MIN {
            return Some(Held::Copy);
        }
        match item.pin() {
            Some(pin) => Some(Held::Pin(pin)),
            None => {
                let room = self.bytes.capacity() - self.bytes.len();
                (room >= len + ROOM_BESIDE).then_some(Held::Copy)
            }
        }
    }

    /// Makes room for the copy of a value that may not be pinned. Returns false if there is no memory.
    #[cold]
    pub(crate) fn reserve_copy(&mut self, len: usize) -> bool {
        self.bytes.try_reserve(len + ROOM_BESIDE).is_ok()
    }

    /// Appends the value of an item, as [`Output::hold`] said.
    #[inline]
    pub(crate) fn push_value(&mut self, item: &Item<'_>, held: Held) {
        match held {
            Held::Copy => {
                let value = item.value();
                self.bytes.extend_from_slice(value);
                add_work(value.len());
            }
            Held::Pin(pin) => {
                self.push_pin(pin);
            }
        }
    }

    fn push_pin(&mut self, pin: Pin) {
        self.pinned += pin.len();
        self.briefly += brief(&pin);
        self.pins.push_back((self.bytes.len(), pin));
    }

    #[inline]
    pub(crate) fn line(&mut self, line: &str) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.bytes.len())
    }

    /// Takes back what was appended since `mark`. A value always comes behind bytes of its response.
    pub(crate) fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.0);
        while let Some((at, pin)) = self.pins.back()
            && *at > mark.0
        {
            self.pinned -= pin.len();
            self.briefly -= brief(pin);
            self.pins.pop_back();
        }
    }

    /// Returns whether no further request should be executed.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() + self.briefly >= FULL || self.pinned >= 16 * FULL
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Returns the number of bytes that have not been sent.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.sent + self.pinned - self.sent_of_pin
    }

    pub(crate) fn has_pins(&self) -> bool {
        !self.pins.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.pins.clear();
        (self.pinned, self.briefly) = (0, 0);
        (self.sent, self.sent_of_pin) = (0, 0);
    }

    /// Calls `f` with what has not been sent, in order, until it returns false.
    fn for_each_left<'a>(&'a self, mut f: impl FnMut(&'a [u8]) -> bool) {
        let mut from = self.sent;
        let mut skip = self.sent_of_pin;
        let mut each = |piece: &'a [u8]| piece.is_empty() || f(piece);
        for (at, pin) in &self.pins {
            if !each(&self.bytes[from..*at]) || !each(&pin[std::mem::take(&mut skip)..]) {
                return;
            }
            from = *at;
        }
        each(&self.bytes[from..]);
    }

    /// Fills `slices` with the bytes that have not been sent, up to `most` bytes. Returns the number of
    /// slices that it uses.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], mut most: usize) -> usize {
        let mut used = 0;
        self.for_each_left(|piece| {
            let piece = &piece[..piece.len().min(most)];
            slices[used] = IoSlice::new(piece);
            used += 1;
            most -= piece.len();
            used < slices.len() && most > 0
        });
        used
    }

    /// Notes that `bytes` more have been sent, and lets go of values that have been sent whole.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        debug_assert!(bytes <= self.left());
        while let Some((at, pin)) = self.pins.front() {
            let before = at - self.sent;
            let len = pin.len();
            let whole = before + len - self.sent_of_pin;
            if bytes < whole {
                let plain = bytes.min(before);
                self.sent += plain;
                self.sent_of_pin += bytes - plain;
                return;
            }
            bytes -= whole;
            self.sent = *at;
            self.sent_of_pin = 0;
            self.pinned -= len;
            self.briefly -= brief(pin);
            self.pins.pop_front();
        }
        self.sent += bytes;
    }

    /// Moves the bytes that have not been sent to another output. If they are at most `copy_max`, all
    /// are copied, so that nothing stays pinned; otherwise long values stay pinned. Returns `None` if
    /// there is no memory.
    pub(crate) fn take_left(&mut self, copy_max: usize) -> Option<Self> {
        let stays = self.left() > copy_max;
        let mut rest = Self::default();
        let kept = |(_, pin): &&(usize, Pin)| stays && brief(pin) == 0;
        let (number, bytes) = self
            .pins
            .iter()
            .filter(kept)
            .fold((0, 0), |(number, bytes), (_, pin)| {
                (number + 1, bytes + pin.len())
            });
        // (A part of the first has been sent, perhaps.)
        let copied = (self.left() + self.sent_of_pin).saturating_sub(bytes);
        rest.bytes.try_reserve_exact(copied).ok()?;
        rest.pins.try_reserve_exact(number).ok()?;
        let (mut from, mut sent) = (self.sent, self.sent_of_pin);
        for (at, pin) in self.pins.drain(..) {
            rest.bytes.extend_from_slice(&self.bytes[from..at]);
            if stays && brief(&pin) == 0 {
                rest.sent_of_pin += sent;
                rest.push_pin(pin);
            } else {
                rest.bytes.extend_from_slice(&pin[sent..]);
            }
            (from, sent) = (at, 0);
        }
        rest.bytes.extend_from_slice(&self.bytes[from..]);
        self.clear();
        Some(rest)
    }

    /// Returns the bytes that it takes of the process's own memory.
    pub(crate) fn footprint(&self) -> usize {
        self.bytes.capacity() + self.pins.capacity() * size_of::<(usize, Pin)>()
    }
}

/// Returns the length of `pin` if it ends with the turn, or else 0.
fn brief(pin: &Pin) -> usize {
    match pin.len() {
        len if len <= COPY_MAX => len,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Condition, Config, Mode, Store};

    fn flat(out: &Output) -> Vec<u8> {
        let mut all = Vec::new();
        out.for_each_left(|piece| {
            all.extend_from_slice(piece);
            true
        });
        all
    }

    /// "a", a pinned value, "b", one that is pinned for the turn alone, "c".
    fn output() -> (Output, Vec<u8>) {
        let store = Store::new(Config::default()).unwrap();
        let tenant = store.tenant("").unwrap();
        let (long, short) = (vec![b'L'; COPY_MAX + 1], vec![b's'; COPY_MAX]);
        let mut out = Output::default();
        out.bytes.push(b'a');
        for (value, after) in [(&long, b'b'), (&short, b'c')] {
            tenant
                .set(b"k", 0, 0, value, Mode::Set, Condition::default())
                .unwrap();
            out.reserve().unwrap();
            let push = |item: &Item<'_>| {
                let held = out.hold(item).unwrap();
                out.push_value(item, held);
            };
            assert_eq!(tenant.get(b"k", push), Some(()));
            out.bytes.push(after);
        }
        assert!(out.has_pins());
        let whole = [&b"a"[..], &long, b"b", &short, b"c"].concat();
        (out, whole)
    }

    #[test]
    fn what_is_left_is_the_same_however_much_was_sent() {
        let (mut out, whole) = output();
        assert_eq!(out.left(), whole.len());
        let mut sent = 0;
        let most = COPY_MAX - 96;
        for step in [0, 1, 1, most, 96, 1, 1, most, 96] {
            out.advance(step);
            sent += step;
            assert_eq!(flat(&out), whole[sent..], "{sent}");
            assert_eq!(out.left(), whole.len() - sent);
        }
        assert!(out.is_empty());
    }

    #[test]
    fn a_value_that_was_sent_is_let_go() {
        let (mut out, whole) = output();
        out.advance(1 + COPY_MAX);
        assert_eq!(out.pins.len(), 2);
        out.advance(1);
        assert_eq!((out.pins.len(), out.pinned), (1, COPY_MAX));
        assert_eq!(flat(&out), whole[COPY_MAX + 2..]);
        out.advance(1 + COPY_MAX);
        assert!(!out.has_pins());
        assert_eq!((flat(&out), out.briefly), (b"c".to_vec(), 0));
    }

    #[test]
    fn an_answer_that_has_nothing_leaves_its_room() {
        let mut out = Output::with_limit(2);
        for _ in 0..5 {
            assert_eq!(out.reserve(), Ok(()));
        }
        out.line("first");
        for _ in 0..5 {
            assert_eq!(out.reserve(), Ok(()));
        }
        out.line("second");
        assert_eq!(out.reserve(), Err(NoRoom::Limit));
        // Sent or not, what is taken stays taken until there is room again.
        out.clear();
        assert_eq!(out.reserve(), Err(NoRoom::Limit));
        out.make_room();
        assert_eq!(out.reserve(), Ok(()));
    }

    /// What was noted before something was sent takes back no piece of what came later.
    #[test]
    fn an_old_mark_leaves_an_output_whole() {
        let (out, _) = output();
        let old = Mark(out.bytes.len() - 1);
        let (mut out, _) = output();
        out.truncate(Mark(0));
        assert!(out.is_empty() && !out.has_pins());
        let (mut out, whole) = output();
        out.truncate(old);
        assert_eq!(flat(&out), whole[..whole.len() - 1]);
    }

    #[test]
    fn slices_use_the_room_that_there_is() {
        let (out, whole) = output();
        let mut slices = [IoSlice::new(&[]); 2];
        let total = |slices: &[IoSlice<'_>]| slices.iter().map(|slice| slice.len()).sum::<usize>();
        assert_eq!(out.slices(&mut slices, usize::MAX), 2);
        assert_eq!(total(&slices), 2 + COPY_MAX);
        for most in [1, 2, 100, COPY_MAX + 2, COPY_MAX + 3] {
            let mut slices = [IoSlice::new(&[]); 8];
            let used = out.slices(&mut slices, most);
            assert_eq!(total(&slices[..used]), most);
        }
        let mut slices = [IoSlice::new(&[]); 8];
        let used = out.slices(&mut slices, whole.len());
        let sent: Vec<u8> = slices[..used]
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        assert_eq!(sent, whole);
    }

    #[test]
    fn what_a_socket_does_not_take_is_copied_if_it_is_little() {
        let (mut out, whole) = output();
        out.advance(2);
        let rest = out.take_left(whole.len() - 2).unwrap();
        assert!(out.is_empty() && !rest.has_pins());
        assert_eq!(flat(&rest), whole[2..]);
        // Beyond `copy_max`, values that are alone in their segments stay pinned, wherever sending stopped.
        for sent in [0, 1, 2, COPY_MAX, COPY_MAX + 2, COPY_MAX + 4] {
            let (mut out, whole) = output();
            out.advance(sent);
            let mut rest = out.take_left(0).unwrap();
            let pins = usize::from(sent < COPY_MAX + 2);
            assert!(out.is_empty() && rest.pins.len() == pins, "{sent}");
            assert_eq!(flat(&rest), whole[sent..], "{sent}");
            assert_eq!((rest.left(), rest.briefly), (whole.len() - sent, 0));
            rest.advance(1);
            assert_eq!(flat(&rest), whole[sent + 1..], "{sent}");
        }
    }

    #[test]
    fn what_may_not_be_pinned_is_copied_if_there_is_room() {
        let config = Config {
            pinned_max: Some(1),
            ..Config::default()
        };
        let store = Store::new(config).unwrap();
        let tenant = store.tenant("").unwrap();
        for (key, len) in [(b"p", 50_000), (b"s", COPY_MAX), (b"l", 50_000)] {
            let value = vec![b'v'; len];
            let stored = tenant.set(key, 0, 0, &value, Mode::Set, Condition::default());
            stored.unwrap();
        }
        // One may be pinned, whatever it takes.
        let pin = tenant.get(b"p", |item| item.pin()).flatten();
        assert!(pin.is_some());
        let mut out = Output::default();
        out.reserve().unwrap();
        let held = |out: &Output, key: &[u8]| tenant.get(key, |item| out.hold(item)).unwrap();
        assert!(matches!(held(&out, b"s"), Some(Held::Copy)));
        assert!(held(&out, b"l").is_none());
        assert!(out.reserve_copy(50_000));
        assert!(matches!(held(&out, b"l"), Some(Held::Copy)));
    }

    #[test]
    fn a_response_can_be_taken_back() {
        let (mut out, whole) = output();
        let mark = out.mark();
        let before = out.left();
        let (more, _) = output();
        out.bytes.extend_from_slice(&more.bytes);
        for (at, pin) in more.pins {
            out.pinned += pin.len();
            out.briefly += brief(&pin);
            out.pins.push_back((at + before, pin));
        }
        out.truncate(mark);
        assert_eq!(flat(&out), whole);
    }
}

//! Numbers in decimal digits, for `incr` and `decr`.

/// Length of the longest value that is read as a number: the digits of 2^64 and some padding.
const LONGEST: usize = 32;

/// A number as a value: its digits, and spaces up to the length of the value that it replaces, as
/// in memcached.
#[derive(Debug, Clone, Copy)]
pub struct Digits {
    text: [u8; LONGEST],
    len: usize,
}

impl Digits {
    /// At least `len` bytes, as far as a number can have.
    pub fn new(mut number: u64, len: usize) -> Self {
        let mut digits = [b' '; 20];
        let mut count = 0;
        loop {
            digits[count] = b'0' + (number % 10) as u8;
            (number, count) = (number / 10, count + 1);
            if number == 0 {
                break;
            }
        }
        let mut text = [b' '; LONGEST];
        for (to, from) in text.iter_mut().zip(digits[..count].iter().rev()) {
            *to = *from;
        }
        Self {
            text,
            len: count.max(len.min(LONGEST)),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.text[..self.len], &[]]
    }
}

/// Returns the number of 64 bits at the beginning of a value, if there is one. As in memcached, there
/// may be spaces before it, and a space and anything else behind it.
pub fn parse(value: &[u8]) -> Option<u64> {
    if value.len() > LONGEST {
        return None;
    }
    let mut words = value.split(u8::is_ascii_whitespace);
    let digits = words.find(|word| !word.is_empty())?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_were_written() {
        for number in [0, 9, 10, 1234567890, u64::MAX] {
            for len in [0, 1, 20, 25, 40] {
                let digits = Digits::new(number, len);
                let [text, _] = digits.parts();
                assert_eq!(parse(text), Some(number));
                assert_eq!(text.len(), number.to_string().len().max(len.min(LONGEST)));
            }
        }
        for bad in [
            &b""[..],
            b" ",
            b"-1",
            b"1x",
            b"18446744073709551616",
            b"a 1",
            &[b'1'; 33],
        ] {
            assert_eq!(parse(bad), None);
        }
        for (text, number) in [(&b" 5"[..], 5), (b"5 abc", 5), (b" \t7 8", 7)] {
            assert_eq!(parse(text), Some(number));
        }
    }
}

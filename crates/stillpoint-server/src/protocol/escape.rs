//! Keys in dumps and logs, where a byte that could be taken for a separator is written `%NN`.

/// Appends `key` with every byte but letters, digits and `-_.~` as `%` and two hexadecimal digits.
pub fn push(out: &mut Vec<u8>, key: &[u8]) {
    push_if(out, key, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
    });
}

/// Appends `key` with only those bytes written as `%NN` that would end a word or a line, and `%`: as clients of memcached expect keys, unless they deceive.
pub fn push_word(out: &mut Vec<u8>, key: &[u8]) {
    push_if(out, key, |byte| {
        byte > b' ' && byte != b'\x7f' && byte != b'%'
    });
}

fn push_if(out: &mut Vec<u8>, key: &[u8], plain: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if plain(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn separators_cannot_be_forged() {
        let mut out = Vec::new();
        super::push(&mut out, b"n,foo \r\n=%\xff-_.~Z9");
        assert_eq!(out, b"n%2Cfoo%20%0D%0A%3D%25%FF-_.~Z9");
        out.clear();
        super::push_word(&mut out, b"a:b,\xff \r\n\0%\x7f");
        assert_eq!(out, b"a:b,\xff%20%0D%0A%00%25%7F");
    }
}

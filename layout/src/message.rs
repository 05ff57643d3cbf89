//! Text with numbers in it, built at compile time.
//!
//! A `const fn` can neither allocate nor format. [`Message`] is a byte buffer that both a `const`
//! panic and `Display` write through, so an error reads the same from the compiler and at run time.

/// Bytes that a [`Message`] holds: more than the longest layout. Longer text is cut, and ends with
/// `...`.
pub const MESSAGE_CAPACITY: usize = 2048;

/// A short text built by `const` code.
///
/// ```
/// use tilewright_layout::Message;
/// const TEXT: Message = Message::new().text("extent ").number(-12);
/// assert_eq!(TEXT.as_str(), "extent -12");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Message {
    bytes: [u8; MESSAGE_CAPACITY],
    len: usize,
}

impl Default for Message {
    fn default() -> Self {
        Message::new()
    }
}

impl Message {
    /// The empty message.
    pub const fn new() -> Message {
        Message { bytes: [0; MESSAGE_CAPACITY], len: 0 }
    }

    /// The message followed by `text`.
    pub const fn text(mut self, text: &str) -> Message {
        let bytes = text.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            self.push(bytes[i]);
            i += 1;
        }
        self
    }

    /// The message followed by a decimal number.
    pub const fn number(mut self, value: i64) -> Message {
        let mut digits = [0u8; 20];
        let mut count = 0;
        let mut rest = value.unsigned_abs();
        loop {
            digits[count] = b'0' + (rest % 10) as u8;
            count += 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            self.push(b'-');
        }
        while count > 0 {
            count -= 1;
            self.push(digits[count]);
        }
        self
    }

    /// Whether the text ends with that byte.
    pub(crate) const fn ends_with(&self, byte: u8) -> bool {
        self.len > 0 && self.bytes[self.len - 1] == byte
    }

    pub(crate) const fn push(&mut self, byte: u8) {
        if self.len < MESSAGE_CAPACITY {
            self.bytes[self.len] = byte;
            self.len += 1;
        } else {
            self.bytes[MESSAGE_CAPACITY - 3] = b'.';
            self.bytes[MESSAGE_CAPACITY - 2] = b'.';
            self.bytes[MESSAGE_CAPACITY - 1] = b'.';
        }
    }

    /// The text built so far.
    pub const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            // Only a cut inside a multi-byte character gets here, and this crate's texts are ASCII.
            Err(_) => "(message cut)",
        }
    }
}

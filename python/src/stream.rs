//! Streams of other code, by handle.
#![expect(unsafe_code, reason = "streams of other libraries, by handle")]

use std::sync::{Mutex, PoisonError};

use tilewright::codegen::device::{Device, DeviceError, Stream, cuda};

/// The stream that was used last: most calls use the one of the call before.
#[derive(Default)]
pub struct LastStream(Mutex<Option<(u64, Stream)>>);

impl LastStream {
    /// The stream of a handle.
    ///
    /// # Safety
    /// That of [`cuda::foreign_stream`].
    pub unsafe fn stream(&self, device: &Device, handle: u64) -> Result<Stream, DeviceError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, stream)) = last.as_ref()
            && *known == handle
        {
            return Ok(stream.clone());
        }
        // SAFETY: as the caller promises.
        let made = unsafe { cuda::foreign_stream(device, handle) }?;
        *last = Some((handle, made.clone()));
        Ok(made)
    }
}

//! Memory spaces as marker types.

/// Marker of the memory that a view stands for. On the host all of them are slices; the marker
/// keeps them apart in signatures.
pub trait Space: Copy + Default + Send + Sync + 'static {
    /// The name in messages.
    const NAME: &'static str;
}

macro_rules! spaces {
    ($($(#[$meta:meta])* $name:ident = $text:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl Space for $name {
            const NAME: &'static str = $text;
        }
    )*};
}

spaces! {
    /// Memory of the host.
    Host = "host";
    /// Global memory of a device.
    Global = "global";
    /// Shared memory of a thread block.
    Shared = "shared";
    /// Registers of one thread.
    Register = "register";
}

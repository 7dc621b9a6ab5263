//! The drives that the trials run on: the presets, by name.

use std::str::FromStr;

use terrace_device::model::{Preset, Spec, UnknownPreset};

/// A drive to measure on.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its name.
    pub name: String,
    /// Its model.
    pub spec: Spec,
}

impl FromStr for Drive {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Drive, UnknownPreset> {
        Ok(Drive { name: name.to_string(), spec: name.parse::<Preset>()?.spec() })
    }
}

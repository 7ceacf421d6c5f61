//! What a template needs to become one kernel: its fields, its block, its shared memory, its name.
//!
//! In: an op's decisions. Out: [`KernelSpec`], which `codegen` renders. Must not know how text is made.

use crate::dtype::Dtype;

/// One compile-time value of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecValue {
    /// An element type; rendered as its CUDA name.
    Type(Dtype),
    /// An element type of what the kernel does not have: rendered as any other, but not part of the name.
    UnusedType(Dtype),
    /// A whole number; rendered as it is.
    Int(i64),
    /// A real number; rendered as a C++ `float` literal.
    Float(f64),
    /// Rendered as `true` or `false`.
    Bool(bool),
    /// One of a template's named variants; rendered as it is (an enumerator or a function name).
    Word(&'static str),
    /// A name put together from several values, of letters, digits, `_`, `.` and `-`; rendered as it is.
    Text(String),
    /// Whole numbers computed from the other fields; rendered as a braced list, and not part of the name.
    Table(Vec<u64>),
    /// Whole numbers that follow from the other fields, for a file of the device vocabulary that is made for each of
    /// them; not part of the name.
    List(Vec<u64>),
}

/// A named compile-time value and the prefix it has in the kernel's name.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecField {
    /// The name the template uses: `head_dim`.
    pub name: &'static str,
    /// What stands before the value in the kernel's name: `d` makes `d64`. A true `Bool` is the label alone, a false
    /// one nothing.
    pub label: &'static str,
    /// The value.
    pub value: SpecValue,
}

/// Everything that decides the text of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSpec {
    /// Path of the template below `templates/ops`, without endings: `norm/forward`.
    pub template: &'static str,
    /// Threads per block.
    pub block: u32,
    /// Dynamic shared memory per block, bytes.
    pub shared_memory: u32,
    /// The template's values, in the order they have in the name.
    pub fields: Vec<SpecField>,
}

/// Shorthand for a field.
#[must_use]
pub fn field(name: &'static str, label: &'static str, value: SpecValue) -> SpecField {
    SpecField { name, label, value }
}

impl KernelSpec {
    /// The one name of this kernel, spelled from every field: file, entry point, cache key and profile row use it.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = self.template.replace('/', "_");
        for SpecField { label, value, .. } in &self.fields {
            let part = match value {
                SpecValue::Type(dtype) => format!("{label}{}", dtype.name()),
                SpecValue::Int(number) => format!("{label}{number}").replace('-', "m"),
                SpecValue::Float(number) => format!("{label}{number:e}").replace('-', "m").replace('.', "p"),
                SpecValue::Bool(true) => (*label).to_owned(),
                SpecValue::Bool(false) => continue,
                SpecValue::Word(word) => format!("{label}{word}"),
                SpecValue::Text(text) => format!("{label}{text}").replace('-', "m").replace('.', "p"),
                SpecValue::UnusedType(_) | SpecValue::Table(_) | SpecValue::List(_) => continue,
            };
            name.push('_');
            name.push_str(&part);
        }
        format!("{name}_t{}", self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_spells_every_field() {
        let spec = KernelSpec {
            template: "norm/forward",
            block: 128,
            shared_memory: 0,
            fields: vec![
                field("kind", "", SpecValue::Word("rms")),
                field("x_type", "", SpecValue::Type(Dtype::Fp32)),
                field("columns", "d", SpecValue::Int(768)),
                field("epsilon", "eps", SpecValue::Float(1e-5)),
                field("bias", "bias", SpecValue::Bool(false)),
                field("wide", "wide", SpecValue::Bool(true)),
                field("rule", "by", SpecValue::Text("linear_1.5e-1".to_owned())),
                field("table", "", SpecValue::Table(vec![3, 4])),
                field("list", "", SpecValue::List(vec![5])),
            ],
        };
        assert_eq!(spec.name(), "norm_forward_rms_fp32_d768_eps1em5_wide_bylinear_1p5em1_t128");
    }
}

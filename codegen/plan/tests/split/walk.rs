//! Memory in f64, and what a launch does to it. What nobody wrote is not a number, and makes everything it touches so.

use kernwright_plan::buffer::BufferId;
use kernwright_plan::launch::{Argument, Gemm, Launch, Operand};
use kernwright_plan::plan::Plan;
use kernwright_plan::spec::{KernelSpec, SpecValue};

pub(crate) struct Memory<'a> {
    plan: &'a Plan,
    /// Of each base buffer.
    contents: Vec<Vec<f64>>,
}

/// The compile-time values of the softmax kernels.
struct Fields {
    /// Keys that a query sees before and behind its place; below 0 all.
    bounds: [i64; 2],
    scale: f64,
    cap: f64,
    heads: usize,
    head_dim: usize,
}

impl Fields {
    fn of(spec: &KernelSpec) -> Self {
        let mut fields = Self { bounds: [0; 2], scale: 0.0, cap: 0.0, heads: 0, head_dim: 0 };
        for field in &spec.fields {
            match (field.name, &field.value) {
                ("left", SpecValue::Int(left)) => fields.bounds[0] = *left,
                ("right", SpecValue::Int(right)) => fields.bounds[1] = *right,
                ("scale", SpecValue::Float(scale)) => fields.scale = *scale,
                ("cap", SpecValue::Float(cap)) => fields.cap = *cap,
                ("heads", SpecValue::Int(n)) => fields.heads = *n as usize,
                ("head_dim", SpecValue::Int(n)) => fields.head_dim = *n as usize,
                (_, SpecValue::Type(_) | SpecValue::UnusedType(_)) => {}
                (name, value) => panic!("`{name}` = {value:?}"),
            }
        }
        fields
    }

    /// `place` is where the query stands among the keys, perhaps before them.
    fn sees(&self, place: i64, key: usize) -> bool {
        let (ahead, [left, right]) = (key as i64 - place, self.bounds);
        (left < 0 || -ahead <= left) && (right < 0 || ahead <= right)
    }

    /// The score of a product, and its slope.
    fn score(&self, product: f64) -> (f64, f64) {
        if self.cap > 0.0 {
            let h = (self.scale * product / self.cap).tanh();
            return (self.cap * h, (1.0 - h * h) * self.scale);
        }
        (self.scale * product, self.scale)
    }
}

impl<'a> Memory<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let contents = plan.buffers.iter().map(|buffer| match buffer.view {
            None => vec![f64::NAN; buffer.len()],
            Some(_) => Vec::new(),
        });
        Self { plan, contents: contents.collect() }
    }

    /// Where row and column of a buffer lie in its base.
    fn at(&self, id: BufferId, row: usize, column: usize) -> usize {
        row * self.plan.row_stride(id) + self.plan.base(id).1 + column
    }

    fn base(&mut self, id: BufferId) -> &mut Vec<f64> {
        let base = self.plan.base(id).0;
        &mut self.contents[base.0]
    }

    pub(crate) fn set(&mut self, id: BufferId, values: &[f64]) {
        let columns = self.plan.buffer(id).columns();
        for (row, values) in values.chunks(columns).enumerate() {
            let at = self.at(id, row, 0);
            self.base(id)[at..at + columns].copy_from_slice(values);
        }
    }

    pub(crate) fn get(&mut self, id: BufferId) -> Vec<f64> {
        let (rows, columns) = (self.plan.buffer(id).rows(), self.plan.buffer(id).columns());
        let mut values = Vec::new();
        for row in 0..rows {
            let at = self.at(id, row, 0);
            values.extend_from_slice(&self.base(id)[at..at + columns]);
        }
        values
    }

    pub(crate) fn run(&mut self, launch: &Launch) {
        match launch {
            Launch::Gemm(gemm) => self.products(gemm),
            Launch::Kernel { spec, grid, arguments } => {
                let rows = match spec.template {
                    "attention/softmax_forward" => self.softmax(&Fields::of(spec), arguments),
                    "attention/softmax_backward" => self.softmax_backward(&Fields::of(spec), arguments),
                    other => panic!("`{other}` is not expected here"),
                };
                let blocks = rows.div_ceil(spec.block as usize / 32);
                assert_eq!(*grid, [blocks as u32, 1, 1], "a warp for each of {rows} rows");
            }
            other => panic!("{other:?} is not expected here"),
        }
    }

    fn products(&mut self, gemm: &Gemm) {
        let n: usize = gemm.batches.iter().map(|batch| batch.count).product();
        for index in 0..n {
            let (mut rest, mut offsets) = (index, [0; 3]);
            for batch in gemm.batches.iter().rev() {
                let number = rest % batch.count;
                rest /= batch.count;
                offsets[0] += number * batch.a;
                offsets[1] += number * batch.b;
                offsets[2] += number * batch.d;
            }
            self.product(gemm, offsets);
        }
    }

    fn product(&mut self, gemm: &Gemm, [a_offset, b_offset, d_offset]: [usize; 3]) {
        let element = |memory: &Self, of: Operand, offset: usize, row: usize, column: usize| {
            let (row, column) = if of.transposed { (column, row) } else { (row, column) };
            let at = memory.at(of.buffer, of.row + row, of.column + column) + offset;
            memory.contents[memory.plan.base(of.buffer).0.0][at]
        };
        let mut results = Vec::new();
        for row in 0..gemm.m {
            for column in 0..gemm.n {
                let terms = (0..gemm.k).map(|i| {
                    element(self, gemm.a, a_offset, row, i) * element(self, gemm.b, b_offset, i, column)
                });
                let c = Operand { row: gemm.row, ..Operand::plain(gemm.d) };
                assert!(gemm.c.is_none_or(|of| of == gemm.d), "added to in place");
                let before = gemm.c.map_or(0.0, |_| element(self, c, d_offset, row, column));
                results.push(terms.sum::<f64>() + before);
            }
        }
        for (index, value) in results.into_iter().enumerate() {
            let at = self.at(gemm.d, gemm.row + index / gemm.n, index % gemm.n) + d_offset;
            self.base(gemm.d)[at] = value;
        }
    }

    /// Returns how many rows there are.
    fn softmax(&mut self, fields: &Fields, arguments: &[Argument]) -> usize {
        use Argument::{Buffer, I32, I64};
        let &[
            Buffer(Some(p)),
            Buffer(Some(lse)),
            Buffer(Some(x)),
            I64(first_row),
            I32(rows),
            I32(queries),
            I32(keys),
            I64(stride),
        ] = arguments
        else {
            panic!("{arguments:?}");
        };
        let (rows, length, stride) = (rows as usize, keys as usize, stride as usize);
        for row in 0..rows {
            let query = row as i64 % i64::from(queries) + i64::from(keys - queries);
            let scores: Vec<f64> =
                (0..length).map(|key| fields.score(self.base(x)[row * stride + key]).0).collect();
            let seen = |key: &usize| fields.sees(query, *key);
            let sum = (0..length).filter(seen).map(|key| scores[key].exp()).sum::<f64>();
            self.base(lse)[first_row as usize + row] = sum.ln();
            for key in 0..stride {
                let is_seen = key < length && seen(&key);
                self.base(p)[row * stride + key] = if is_seen { scores[key].exp() / sum } else { 0.0 };
            }
        }
        rows
    }

    /// Returns how many rows there are.
    fn softmax_backward(&mut self, fields: &Fields, arguments: &[Argument]) -> usize {
        use Argument::{Buffer, I32, I64};
        let (pointers, numbers) = arguments.split_at(7);
        let pointers: Vec<BufferId> = pointers
            .iter()
            .map(|one| if let Buffer(Some(id)) = one { *id } else { panic!("{one:?} is no pointer") })
            .collect();
        let &[p, d_x, x, d_p, lse, out, d_out] = &pointers[..] else { panic!("{pointers:?}") };
        let &[
            I32(first),
            I32(rows),
            I32(queries),
            I32(keys),
            I64(stride),
            I64(out_stride),
            I64(d_out_stride),
        ] = numbers
        else {
            panic!("{numbers:?}");
        };
        let (first, rows, stride) = (first as usize, rows as usize, stride as usize);
        let (length, keys) = (queries as usize, keys as usize);
        for row in 0..rows {
            let (query, head) = (row % length, row / length % fields.heads);
            let token = (first + row / length / fields.heads) * length + query;
            let element = |memory: &Self, of: BufferId, stride: i64, i: usize| {
                let (base, column) = memory.plan.base(of);
                memory.contents[base.0][column + token * stride as usize + head * fields.head_dim + i]
            };
            let delta: f64 = (0..fields.head_dim)
                .map(|i| element(self, out, out_stride, i) * element(self, d_out, d_out_stride, i))
                .sum();
            let lse = self.base(lse)[first * fields.heads * length + row];
            for key in 0..stride {
                let at = row * stride + key;
                let (mut probability, mut gradient) = (0.0, 0.0);
                let place = query as i64 + keys as i64 - length as i64;
                if key < keys && fields.sees(place, key) {
                    let (score, slope) = fields.score(self.base(x)[at]);
                    probability = (score - lse).exp();
                    gradient = probability * (self.base(d_p)[at] - delta) * slope;
                }
                self.base(p)[at] = probability;
                self.base(d_x)[at] = gradient;
            }
        }
        rows
    }
}

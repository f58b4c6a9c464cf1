//! What processors of 32 bits have no instructions for, and LLVM would call a library for: division of numbers of 64 bits, conversions between
//! these and floats, and rounding to integral values. The last is for vectors of RISC-V as well.

use super::function::Function;
use super::{splat, suffix, vector};

/// Quotients of 64 bits, by shifting and subtracting where a number has more than 32. No divisor is zero.
const DIVISIONS: &str = "\
define internal i64 @tilewright.udiv(i64 %a, i64 %b) #0 {
entry:
  %both = or i64 %a, %b
  %high = lshr i64 %both, 32
  %small = icmp eq i64 %high, 0
  br i1 %small, label %narrow, label %step
narrow:
  %a32 = trunc i64 %a to i32
  %b32 = trunc i64 %b to i32
  %q32 = udiv i32 %a32, %b32
  %q64 = zext i32 %q32 to i64
  ret i64 %q64
step:
  %left = phi i32 [ 64, %entry ], [ %less, %step ]
  %rest = phi i64 [ 0, %entry ], [ %next_rest, %step ]
  %bits = phi i64 [ %a, %entry ], [ %next_bits, %step ]
  %carry = icmp slt i64 %rest, 0
  %top = lshr i64 %bits, 63
  %twice = shl i64 %rest, 1
  %more = or i64 %twice, %top
  %shifted = shl i64 %bits, 1
  %reaches = icmp uge i64 %more, %b
  %takes = or i1 %carry, %reaches
  %taken = sub i64 %more, %b
  %next_rest = select i1 %takes, i64 %taken, i64 %more
  %bit = zext i1 %takes to i64
  %next_bits = or i64 %shifted, %bit
  %less = sub i32 %left, 1
  %done = icmp eq i32 %less, 0
  br i1 %done, label %end, label %step
end:
  ret i64 %next_bits
}

define internal i64 @tilewright.sdiv(i64 %a, i64 %b) #0 {
  %minus_a = sub i64 0, %a
  %minus_b = sub i64 0, %b
  %a_below = icmp slt i64 %a, 0
  %b_below = icmp slt i64 %b, 0
  %a_size = select i1 %a_below, i64 %minus_a, i64 %a
  %b_size = select i1 %b_below, i64 %minus_b, i64 %b
  %size = call i64 @tilewright.udiv(i64 %a_size, i64 %b_size)
  %minus = sub i64 0, %size
  %differ = xor i1 %a_below, %b_below
  %quotient = select i1 %differ, i64 %minus, i64 %size
  ret i64 %quotient
}

";

/// Powers of two, as LLVM writes floats: 2 to the 32nd and its inverse, and so on.
const TWO_32: &str = "0x41F0000000000000";
const PART_32: &str = "0x3DF0000000000000";
const TWO_52: &str = "0x4330000000000000";
const TWO_23: &str = "0x4160000000000000";
const TWO_63: &str = "0x43E0000000000000";
const TWO_64: &str = "0x43F0000000000000";

impl Function<'_> {
    /// Whether numbers of a lane's type are divided by a function.
    pub(super) fn divides_by_words(&self, lane: &str) -> bool {
        lane == "i64" && self.isa.is_32_bit()
    }

    /// The quotient toward zero; no divisor is zero, and no quotient overflows.
    pub(super) fn quotient(
        &mut self,
        lane: &str,
        lanes: u32,
        signed: bool,
        by_words: bool,
        [x, y]: [&str; 2],
    ) -> String {
        let (name, text) = (if signed { "sdiv" } else { "udiv" }, vector(lane, lanes));
        if !by_words {
            return self.def(format!("{name} {text} {x}, {y}"));
        }
        self.divides = true;
        if lanes == 1 {
            return self.def(format!("call i64 @tilewright.{name}(i64 {x}, i64 {y})"));
        }
        let mut quotients = "poison".to_owned();
        for i in 0..lanes {
            let [x, y] = [x, y].map(|of| self.def(format!("extractelement {text} {of}, i64 {i}")));
            let one = self.def(format!("call i64 @tilewright.{name}(i64 {x}, i64 {y})"));
            quotients = self.def(format!("insertelement {text} {quotients}, i64 {one}, i64 {i}"));
        }
        quotients
    }

    /// Numbers of 64 bits as floats, rounded once.
    pub(super) fn float_of_i64(&mut self, to: &str, lanes: u32, signed: bool, x: &str) -> String {
        let [wide, half, double, truth] = ["i64", "i32", "double", "i1"].map(|lane| vector(lane, lanes));
        let number = |value: i64| splat("i64", lanes, &value.to_string());
        let mut x = x.to_owned();
        if to == "float" {
            // Beyond 53 bits the last 11 are made one that is odd if any is set: rounding to 53 bits then loses nothing, and rounding to
            // 24 goes where that of the number itself does.
            let (shift, limit) = if signed { (1i64 << 53, 1i64 << 54) } else { (0, 1i64 << 53) };
            let shifted = self.def(format!("add {wide} {x}, {}", number(shift)));
            let is_exact = self.def(format!("icmp ult {wide} {shifted}, {}", number(limit)));
            let last = self.def(format!("and {wide} {x}, {}", number(0x7ff)));
            let carried = self.def(format!("add {wide} {last}, {}", number(0x7ff)));
            let joined = self.def(format!("or {wide} {carried}, {x}"));
            let odd = self.def(format!("and {wide} {joined}, {}", number(-0x800)));
            x = self.def(format!("select {truth} {is_exact}, {wide} {x}, {wide} {odd}"));
        }
        let shifted = self.def(format!("lshr {wide} {x}, {}", number(32)));
        let [high, low] = [shifted, x].map(|part| self.def(format!("trunc {wide} {part} to {half}")));
        let upper = if signed { "sitofp" } else { "uitofp" };
        let high = self.def(format!("{upper} {half} {high} to {double}"));
        let high = self.def(format!("fmul {double} {high}, {}", splat("double", lanes, TWO_32)));
        let low = self.def(format!("uitofp {half} {low} to {double}"));
        let sum = self.def(format!("fadd {double} {high}, {low}"));
        match to {
            "float" => self.def(format!("fptrunc {double} {sum} to {}", vector(to, lanes))),
            _ => sum,
        }
    }

    /// Floats as numbers of 64 bits: toward zero, the nearest there is of what is out of range, 0 of what is no number.
    pub(super) fn i64_of_float(&mut self, from: &str, lanes: u32, signed: bool, x: &str) -> String {
        let [wide, half, double, truth] = ["i64", "i32", "double", "i1"].map(|lane| vector(lane, lanes));
        let number = |value: i64| splat("i64", lanes, &value.to_string());
        let float = |value: &str| splat("double", lanes, value);
        let (wide_suffix, half_suffix) = (suffix("double", lanes), suffix("i32", lanes));
        let x = match from {
            "float" => self.def(format!("fpext {} {x} to {double}", vector(from, lanes))),
            _ => x.to_owned(),
        };
        let size = match signed {
            true => self.def(format!("call {double} @llvm.fabs.{wide_suffix}({double} {x})")),
            false => x.clone(),
        };
        let word = |function: &mut Self, of: &str| {
            let call = format!("call {half} @llvm.fptoui.sat.{half_suffix}.{wide_suffix}({double} {of})");
            function.def(call)
        };
        let scaled = self.def(format!("fmul {double} {size}, {}", float(PART_32)));
        let high = word(self, &scaled);
        let taken = self.def(format!("uitofp {half} {high} to {double}"));
        let taken = self.def(format!("fmul {double} {taken}, {}", float(TWO_32)));
        let rest = self.def(format!("fsub {double} {size}, {taken}"));
        let low = word(self, &rest);
        let [high, low] = [high, low].map(|part| self.def(format!("zext {half} {part} to {wide}")));
        let high = self.def(format!("shl {wide} {high}, {}", number(32)));
        let whole = self.def(format!("or {wide} {high}, {low}"));
        if !signed {
            let beyond = self.def(format!("fcmp oge {double} {x}, {}", float(TWO_64)));
            return self.def(format!("select {truth} {beyond}, {wide} {}, {wide} {whole}", number(-1)));
        }
        let below = self.def(format!("fcmp olt {double} {x}, {}", float("0.0")));
        let minus = self.def(format!("sub {wide} {}, {whole}", number(0)));
        let whole = self.def(format!("select {truth} {below}, {wide} {minus}, {wide} {whole}"));
        let beyond = self.def(format!("fcmp oge {double} {size}, {}", float(TWO_63)));
        let [least, most] = [number(i64::MIN), number(i64::MAX)];
        let end = self.def(format!("select {truth} {below}, {wide} {least}, {wide} {most}"));
        self.def(format!("select {truth} {beyond}, {wide} {end}, {wide} {whole}"))
    }

    /// Floats rounded to integral values by `floor`, `ceil`, `trunc` or `roundeven`: adding what leaves no bits for fractions rounds to even,
    /// and one more or less goes from there to where the others go. The sign stays, also that of zero.
    pub(super) fn rounded(&mut self, name: &str, lane: &str, lanes: u32, x: &str) -> String {
        let (text, truth, suffix) = (vector(lane, lanes), vector("i1", lanes), suffix(lane, lanes));
        let limit = splat(lane, lanes, if lane == "float" { TWO_23 } else { TWO_52 });
        let size = self.def(format!("call {text} @llvm.fabs.{suffix}({text} {x})"));
        let has_fraction = self.def(format!("fcmp olt {text} {size}, {limit}"));
        let mut near = self.def(format!("fadd {text} {size}, {limit}"));
        near = self.def(format!("fsub {text} {near}, {limit}"));
        let sign = |function: &mut Self, of: &str| {
            function.def(format!("call {text} @llvm.copysign.{suffix}({text} {of}, {text} {x})"))
        };
        // Toward zero is down for sizes.
        let (of, correction) = match name {
            "trunc" => (size.clone(), Some(("ogt", "fsub"))),
            "floor" => (x.to_owned(), Some(("ogt", "fsub"))),
            "ceil" => (x.to_owned(), Some(("olt", "fadd"))),
            _ => (x.to_owned(), None),
        };
        if name != "trunc" {
            near = sign(self, &near);
        }
        if let Some((past, step)) = correction {
            let is_past = self.def(format!("fcmp {past} {text} {near}, {of}"));
            let back = self.def(format!("{step} {text} {near}, {}", splat(lane, lanes, "1.0")));
            near = self.def(format!("select {truth} {is_past}, {text} {back}, {text} {near}"));
        }
        let near = sign(self, &near);
        self.def(format!("select {truth} {has_fraction}, {text} {near}, {text} {x}"))
    }

    /// Adds what the kernel calls of it to its module, once.
    pub(super) fn add_divisions(&self, functions: &mut String) {
        if self.divides && functions.is_empty() {
            functions.push_str(DIVISIONS);
        }
    }
}

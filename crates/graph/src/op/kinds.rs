//! Keyword attributes: the kinds of unary, binary, reduction and other operator families.

use super::attr::{Attr, keywords};
use crate::text::{ParseError, Reader, Writer};
use tilewright_dtype::DType;

keywords! {
    /// A function of one element without parameters. Integer functions wrap.
    UnaryOp {
        Abs "abs" "Absolute value.",
        Neg "neg" "Negation.",
        Exp "exp" "Exponential.",
        Log "log" "Natural logarithm.",
        Sqrt "sqrt" "Square root.",
        Reciprocal "reciprocal" "1/x, correctly rounded.",
        Floor "floor" "Largest integer not above.",
        Ceil "ceil" "Smallest integer not below.",
        Round "round" "Nearest integer, ties to even.",
        Sign "sign" "-1, 0 or 1.",
        Not "not" "Logical negation.",
        BitwiseNot "bitwise_not" "Complement of every bit.",
        Sin "sin" "Sine.",
        Cos "cos" "Cosine.",
        Tan "tan" "Tangent.",
        Asin "asin" "Inverse sine.",
        Acos "acos" "Inverse cosine.",
        Atan "atan" "Inverse tangent.",
        Sinh "sinh" "Hyperbolic sine.",
        Cosh "cosh" "Hyperbolic cosine.",
        Tanh "tanh" "Hyperbolic tangent.",
        Asinh "asinh" "Inverse hyperbolic sine.",
        Acosh "acosh" "Inverse hyperbolic cosine.",
        Atanh "atanh" "Inverse hyperbolic tangent.",
        Erf "erf" "Error function.",
        Sigmoid "sigmoid" "1 / (1 + exp(-x)).",
        Relu "relu" "max(x, 0).",
        Softplus "softplus" "log(1 + exp(x)).",
        Softsign "softsign" "x / (1 + |x|).",
        Gelu "gelu" "x/2 (1 + erf(x / sqrt 2)).",
        GeluTanh "gelu_tanh" "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).",
        HardSwish "hard_swish" "x * clamp(x/6 + 1/2, 0, 1).",
        Mish "mish" "x * tanh(softplus(x)).",
        IsNan "is_nan" "Whether x is not a number; gives booleans.",
        IsInf "is_inf" "Whether x is infinite; gives booleans.",
        IsPosInf "is_pos_inf" "Whether x is +infinity; gives booleans.",
        IsNegInf "is_neg_inf" "Whether x is -infinity; gives booleans.",
    }

    /// An activation with parameters `alpha` and `beta`.
    ActivationKind {
        LeakyRelu "leaky_relu" "x < 0 ? alpha x : x.",
        Elu "elu" "x < 0 ? alpha (exp(x) - 1) : x.",
        Selu "selu" "beta (x <= 0 ? alpha (exp(x) - 1) : x); beta is ONNX's gamma.",
        Celu "celu" "max(0, x) + min(0, alpha (exp(x / alpha) - 1)).",
        HardSigmoid "hard_sigmoid" "max(0, min(1, alpha x + beta)).",
        ThresholdedRelu "thresholded_relu" "x > alpha ? x : 0.",
        Shrink "shrink" "x < -alpha ? x + beta : x > alpha ? x - beta : 0; alpha is ONNX's lambd.",
        Swish "swish" "x * sigmoid(alpha x).",
    }

    /// A function of two elements, with numpy broadcasting. Integer arithmetic wraps.
    BinaryOp {
        Add "add" "Sum; or of booleans never occurs.",
        Sub "sub" "Difference.",
        Mul "mul" "Product.",
        Div "div" "Quotient; of integers rounded towards zero, with x / 0 = 0.",
        Pow "pow" "Power; the result has the type of the base.",
        Mod "mod" "Remainder with the sign of the divisor.",
        Fmod "fmod" "Remainder with the sign of the dividend, as C's fmod.",
        Min "min" "Smaller; NaN if one is.",
        Max "max" "Larger; NaN if one is.",
        And "and" "Logical and.",
        Or "or" "Logical or.",
        Xor "xor" "Logical exclusive or.",
        BitwiseAnd "bitwise_and" "And of every bit.",
        BitwiseOr "bitwise_or" "Or of every bit.",
        BitwiseXor "bitwise_xor" "Exclusive or of every bit.",
        ShiftLeft "shift_left" "Left shift; 0 for counts of the width or more.",
        ShiftRight "shift_right" "Logical right shift; 0 for counts of the width or more.",
        Equal "equal" "Whether equal; gives booleans.",
        Less "less" "Whether less; gives booleans.",
        LessEqual "less_equal" "Whether less or equal; gives booleans.",
        Greater "greater" "Whether greater; gives booleans.",
        GreaterEqual "greater_equal" "Whether greater or equal; gives booleans.",
    }

    /// What a reduction computes over the reduced elements.
    ReduceKind {
        Sum "sum" "Sum.",
        Mean "mean" "Arithmetic mean.",
        Max "max" "Maximum; NaN if one is.",
        Min "min" "Minimum; NaN if one is.",
        Prod "prod" "Product.",
        SumSquare "sum_square" "Sum of squares.",
        L1 "l1" "Sum of absolute values.",
        L2 "l2" "Root of the sum of squares.",
        LogSum "log_sum" "Logarithm of the sum.",
        LogSumExp "log_sum_exp" "Logarithm of the sum of exponentials, without overflow.",
    }

    /// Which extreme an index reduction looks for.
    Extreme {
        Max "max" "The largest element.",
        Min "min" "The smallest element.",
    }

    /// What a running reduction accumulates.
    CumulativeKind {
        Sum "sum" "Sums.",
        Prod "prod" "Products.",
    }

    /// What a pooling window computes.
    PoolKind {
        Max "max" "Maximum over the window; padding never wins.",
        Average "average" "Mean over the window.",
        Lp "lp" "`p`-norm over the window.",
    }

    /// What padding elements hold.
    PadMode {
        Constant "constant" "The value operand, or 0.",
        Edge "edge" "The nearest element.",
        Reflect "reflect" "Mirrored without repeating the edge.",
        Wrap "wrap" "Periodic.",
    }

    /// How a scattered element combines with what is there.
    ScatterReduction {
        None "none" "Replaces; later updates win.",
        Add "add" "Sum.",
        Mul "mul" "Product.",
        Max "max" "Maximum.",
        Min "min" "Minimum.",
    }

    /// How a resampling interpolates.
    InterpolationMode {
        Nearest "nearest" "The nearest element.",
        Linear "linear" "Multilinear.",
        Cubic "cubic" "Cubic convolution.",
    }

    /// How a resize maps output to input coordinates (ONNX `coordinate_transformation_mode`).
    CoordinateMode {
        HalfPixel "half_pixel" "(x + 0.5) / scale - 0.5.",
        HalfPixelSymmetric "half_pixel_symmetric" "half_pixel, adjusted to keep the centre of the rounded size.",
        PytorchHalfPixel "pytorch_half_pixel" "half_pixel, but 0 where the output extent is 1.",
        AlignCorners "align_corners" "x (in - 1) / (out - 1).",
        Asymmetric "asymmetric" "x / scale.",
        TfCropAndResize "tf_crop_and_resize" "Within the region of interest.",
    }

    /// Which element `nearest` takes.
    NearestMode {
        RoundPreferFloor "round_prefer_floor" "Nearest, halves down.",
        RoundPreferCeil "round_prefer_ceil" "Nearest, halves up.",
        Floor "floor" "Downwards.",
        Ceil "ceil" "Upwards.",
    }

    /// How a resize treats the aspect ratio when sizes are given.
    AspectPolicy {
        Stretch "stretch" "Sizes are taken as they are.",
        NotLarger "not_larger" "The largest scale that keeps every extent within its size.",
        NotSmaller "not_smaller" "The smallest scale that makes every extent reach its size.",
    }

    /// What a grid sample reads outside the image.
    GridPadding {
        Zeros "zeros" "Zero.",
        Border "border" "The nearest element.",
        Reflection "reflection" "Mirrored.",
    }

    /// How a region of interest is pooled.
    RoiMode {
        Average "avg" "Mean of the samples.",
        Max "max" "Maximum of the samples.",
    }

    /// How region-of-interest coordinates map to pixels.
    RoiCoordinates {
        HalfPixel "half_pixel" "Shifted by half a pixel.",
        OutputHalfPixel "output_half_pixel" "Not shifted (opset 10).",
    }

    /// The order of time steps a recurrent layer runs in.
    Direction {
        Forward "forward" "From the first to the last.",
        Reverse "reverse" "From the last to the first.",
        Bidirectional "bidirectional" "Both, concatenated.",
    }

    /// Gate or state activation of a recurrent layer.
    RecurrentActivation {
        Relu "relu" "max(x, 0).",
        Tanh "tanh" "Hyperbolic tangent.",
        Sigmoid "sigmoid" "Logistic function.",
        Affine "affine" "alpha x + beta.",
        LeakyRelu "leaky_relu" "x < 0 ? alpha x : x.",
        ThresholdedRelu "thresholded_relu" "x > alpha ? x : 0.",
        ScaledTanh "scaled_tanh" "alpha tanh(beta x).",
        HardSigmoid "hard_sigmoid" "max(0, min(1, alpha x + beta)).",
        Elu "elu" "x < 0 ? alpha (exp(x) - 1) : x.",
        Softsign "softsign" "x / (1 + |x|).",
        Softplus "softplus" "log(1 + exp(x)).",
    }

    /// Distribution of a random tensor, with parameters `a` and `b`.
    Distribution {
        Uniform "uniform" "Uniform on [a, b).",
        Normal "normal" "Normal with mean a and standard deviation b.",
    }

    /// Where a cast rounds values that lie between two of the narrow float formats (`F8E8M0`).
    RoundMode {
        Up "up" "Upwards in magnitude.",
        Down "down" "Towards zero.",
        Nearest "nearest" "To nearest, ties upwards.",
    }

    /// How a tensor scatter treats positions past the end.
    CacheMode {
        Linear "linear" "Positions are in range.",
        Circular "circular" "Positions wrap around.",
    }

    /// State update of linear attention.
    LinearAttentionRule {
        Linear "linear" "S += k v.",
        Gated "gated" "S = decay S + k v.",
        Delta "delta" "S += beta k (v - S k).",
        GatedDelta "gated_delta" "S = decay S + beta k (v - decay S k).",
    }

    /// Case folding of a string normaliser.
    CaseAction {
        None "none" "As is.",
        Lower "lower" "To lower case.",
        Upper "upper" "To upper case.",
    }

    /// Weighting of an n-gram vectoriser.
    TfIdfMode {
        Tf "tf" "Counts.",
        Idf "idf" "Weights where present.",
        TfIdf "tfidf" "Counts times weights.",
    }
}

impl UnaryOp {
    /// Element type of the result.
    pub fn result(self, operand: DType) -> DType {
        match self {
            UnaryOp::IsNan | UnaryOp::IsInf | UnaryOp::IsPosInf | UnaryOp::IsNegInf => DType::Bool,
            _ => operand,
        }
    }
}

impl UnaryOp {
    /// Whether it takes a few instructions, so that it may be computed again for every pass over its result.
    pub fn is_cheap(self) -> bool {
        match self {
            UnaryOp::Abs
            | UnaryOp::Neg
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Sign
            | UnaryOp::Not
            | UnaryOp::BitwiseNot
            | UnaryOp::Relu
            | UnaryOp::IsNan
            | UnaryOp::IsInf
            | UnaryOp::IsPosInf
            | UnaryOp::IsNegInf => true,
            UnaryOp::Exp
            | UnaryOp::Log
            | UnaryOp::Sqrt
            | UnaryOp::Reciprocal
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tan
            | UnaryOp::Asin
            | UnaryOp::Acos
            | UnaryOp::Atan
            | UnaryOp::Sinh
            | UnaryOp::Cosh
            | UnaryOp::Tanh
            | UnaryOp::Asinh
            | UnaryOp::Acosh
            | UnaryOp::Atanh
            | UnaryOp::Erf
            | UnaryOp::Sigmoid
            | UnaryOp::Softplus
            | UnaryOp::Softsign
            | UnaryOp::Gelu
            | UnaryOp::GeluTanh
            | UnaryOp::HardSwish
            | UnaryOp::Mish => false,
        }
    }
}

impl BinaryOp {
    /// Whether it takes a few instructions, so that it may be computed again for every pass over its result.
    pub fn is_cheap(self) -> bool {
        match self {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::BitwiseAnd
            | BinaryOp::BitwiseOr
            | BinaryOp::BitwiseXor
            | BinaryOp::ShiftLeft
            | BinaryOp::ShiftRight
            | BinaryOp::Equal
            | BinaryOp::Less
            | BinaryOp::LessEqual
            | BinaryOp::Greater
            | BinaryOp::GreaterEqual => true,
            BinaryOp::Pow | BinaryOp::Mod | BinaryOp::Fmod => false,
        }
    }

    /// Whether the result is a truth value about two operands of any type.
    pub fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | Less | LessEqual | Greater | GreaterEqual)
    }

    /// Whether the operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        use BinaryOp::*;
        matches!(self, Add | Mul | Min | Max | And | Or | Xor | BitwiseAnd | BitwiseOr | BitwiseXor | Equal)
    }
}

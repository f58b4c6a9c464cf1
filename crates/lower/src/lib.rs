//! Graph operators to tensor expressions, fused groups to functions, memory and execution plan.

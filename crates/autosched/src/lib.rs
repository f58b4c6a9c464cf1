//! Schedule rules by pattern and the analytic model behind them.

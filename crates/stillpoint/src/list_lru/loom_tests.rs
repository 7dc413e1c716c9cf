//! Model-checked tests.

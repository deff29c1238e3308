// Package chaos proves the promises of a whole cluster under faults: real
// processes (executors, bridges), three Kafka brokers, and PostgreSQL with a
// synchronous standby, which are killed, stopped, cut off and replaced by a
// schedule drawn from a printed seed, while agents keep a log of every call. It
// holds tests only.
package chaos

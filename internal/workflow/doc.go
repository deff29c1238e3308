// Package workflow is the pure core: it parses and checks documents, and
// decides what a run does next. It has no clock, no I/O and no goroutine:
// time, ids and randomness come in as data (language rule C10).
package workflow

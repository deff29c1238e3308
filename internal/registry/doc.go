// Package registry keeps the agents that workflows call: it checks what callers
// say about them, stores it, hands the bridge an agent with its credential
// ready, and looks whether an agent answers (AD-4, AD-5, AD-7, AD-12).
//
// A credential is never stored readable: a record holds a reference ("env:NAME",
// "file:path") or what [Secrets] has sealed. No error, log line or record that
// leaves the package holds one.
//
// Concurrency: every method of [Registry] and [Secrets] may be called from any
// goroutine. No goroutine outlives the call that started it.
package registry

// Package sample has the agents and the workflow with which Parley shows itself,
// an agent that does what it is told, and a scripted agent for tests.
//
//   - [Greeter] speaks Simple A2A, [Polisher] speaks A2A 0.3 over JSON-RPC 2.0.
//     Both answer at once and always the same to the same input.
//   - [Workflow] is the text of hello.yaml, which calls the one and then the
//     other under the names greeter and polisher.
//   - [Scripted] speaks both protocols, does what a test tells it to, and keeps a
//     [CallLog] of everything that was asked of it.
//   - [Mock] is the agent of parley mock-agent: it speaks both protocols and both
//     dialects of A2A, fails, waits, asks and streams as it is told, takes nothing
//     twice, and has limits on everything.
//
// They are plain handlers: whoever mounts them owns the listener.
package sample

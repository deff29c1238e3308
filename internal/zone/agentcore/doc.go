// Package agentcore carries requests of the zone connection to an Execution Zone
// in Amazon Bedrock AgentCore Runtime, by InvokeAgentRuntime.
//
// A runtime believes either signatures (AWS IAM) or tokens (JWT), never both. With
// signatures the AWS SDK makes the request and nothing else: it repeats nothing,
// logs nothing, and what comes back is read and judged here, since the SDK drops
// the bodies of errors. With tokens the SDK cannot be used, and the same request
// goes through package direct.
//
// # Sessions
//
// A session is a machine of its own. Each task has a session, whose id is made of
// Meta.Task, and a call without a task a new one; Info.Affinity tells which, and a
// call with Meta.Affinity goes to that one. A session costs money until it is idle for
// 15 minutes: [Transport.Release] ends it.
//
// # What goes beside a request
//
// The trace context is the members TraceParent and TraceState, since Go's SDK signs those headers.
// The correlation id is the header [CorrelationHeader], which is signed, too, and
// which a runtime passes on if its header allow-list names it; whether or not, the
// params hold the id. An idempotency key is not sent: it is the id of the request.
//
// # What is repeated
//
// Throttling, with or without a type, conflicts of a session that is being made or
// torn down, and what was never sent; once more what was not believed over clocks
// that differ. A container that fails (424) may have worked, so that is an unknown
// outcome and not repeated.
package agentcore

// Package agentcoretest is a Bedrock AgentCore Runtime on this machine, for tests:
// it believes signatures only after making them again, knows the rules of
// sessions, gives requests to a container, and fails in all the ways that the real
// one is known to fail in (zones.md §1.3).
//
// What is not known of the real one is decided here: a container that answers with
// an error status and no JSON-RPC response makes 424 RuntimeClientError.
package agentcoretest

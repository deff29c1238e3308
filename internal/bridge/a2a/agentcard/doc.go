// Package agentcard finds out how an agent is called, without giving it work: it
// fetches and reads the agent's card (A2A specification 1.0 §8, 0.3 §5), checks
// the card's signatures (§8.4), chooses an interface (§8.3.2), and asks harmless
// questions where the card is silent (AD-14).
//
// # What decides
//
//   - What the operator pinned in protocol_config (a2a, binding, url, tenant) goes
//     before everything else.
//   - supportedInterfaces go before url, preferredTransport and
//     additionalInterfaces, in a card that has both.
//   - The newest dialect that is spoken here goes first, then the card's order.
//   - An interface on another host than the agent's own is not called, nor one
//     without TLS if the agent was registered with it: a card is only what
//     somebody wrote. Loopback names count as one host, and 0.0.0.0 stands for
//     the agent's host.
//   - A card below the agent's own path goes before one at the root of the host,
//     which on a host with several agents may be that of another one: it counts
//     only if one of its interfaces is at or near the agent's path.
//   - Where signatures are valid in one form of the card, that form is what is
//     read: nothing that was not signed has an effect. With pinned keys
//     (card_keys) a card that they did not sign is not used.
//   - A card that announces an extended one (extendedAgentCard, or
//     supportsAuthenticatedExtendedCard in 0.3) is replaced by that for an agent
//     whose record has a credential: it is asked for once, where the public card
//     says, and read by the same rules. If the agent refuses, or the extended
//     card cannot be used or trusted, the public one stands.
//
// Each decision leaves a line of explanation. None of them holds a credential.
//
// # The probe
//
// An agent without a card, and an interface without a version, is asked for a
// task that cannot exist: GetTask with A2A-Version 1.0, then tasks/get. A
// JSON-RPC agent answers with an error of JSON-RPC, whose code says whether it
// knows the method. To a Simple A2A agent that is a request without task_id and
// input, which it refuses. No probe names a method that sends a message.
package agentcard

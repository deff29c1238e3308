// Package bridge turns tasks into calls of agents and calls into results. It
// claims attempts in the store before the first byte goes out, dispatches them
// under limits, and settles them; what an agent speaks is an [Adapter]'s
// business (protocol.md P4 to P9 and P16).
package bridge

package a2a

// Binding is a transport of A2A, by the name that agent cards use.
type Binding string

// The bindings (A2A specification 1.0 §9 to §11). Agents on stdio and WebSocket
// speak BindingJSONRPC; the scheme of their URL says how it travels.
const (
	BindingJSONRPC Binding = "JSONRPC"
	BindingREST    Binding = "HTTP+JSON"
	BindingGRPC    Binding = "GRPC"
)

// Endpoint is where and how an agent is called.
type Endpoint struct {
	// URL is http(s)://…, for gRPC also host:port, stdio:COMMAND, or ws(s)://….
	URL     string
	Binding Binding
	Version Version
	// Tenant is sent with every 1.0 request if it is set.
	Tenant string
	// Streaming and Push are what the agent declares, or what its record says.
	Streaming, Push bool
	// Batch is how many requests one JSON-RPC batch may have, 0 for no batches.
	Batch int
}

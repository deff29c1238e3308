package a2a

import (
	"encoding/json"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

// Config is a protocol_config that was read. What the operator says there always
// wins over what was found out; a zero field says nothing.
type Config struct {
	// Method replaces the JSON-RPC method that sends a message in A2A 0.3 (AD-3).
	Method string
	// Auto asks the adapter to find out by itself what nobody has found out yet.
	Auto bool
	// Version, Binding, URL and Tenant are those of the endpoint.
	Version Version
	Binding Binding
	URL     string
	Tenant  string
	// Parts is how the input becomes message parts; "" is PartsText.
	Parts PartsMode
	// Send is how a message is sent.
	Send SendMode
	// Stream says whether the agent has streams; "" or "auto" is what its card
	// says.
	Stream string
	// Batch is the most requests of one JSON-RPC batch, 2 to 100; 0 is none.
	Batch int
}

// SendMode is how a message is sent.
type SendMode string

// The modes (protocol_config.send). The default is SendNonblocking for agents
// of which the dialect is known; the others get the seeds' plain request, to
// which most agents answer when they have finished.
const (
	// SendNonblocking asks the agent to answer at once and to be followed.
	SendNonblocking SendMode = "nonblocking"
	// SendBlocking asks the agent to answer when it has finished.
	SendBlocking SendMode = "blocking"
	// SendStream asks the agent to answer with a stream of events.
	SendStream SendMode = "stream"
)

// The settings of Stream.
const (
	streamAuto = "auto"
	streamOn   = "on"
	streamOff  = "off"
)

// maxBatch bounds a JSON-RPC batch, in requests.
const maxBatch = 100

// CheckConfig implements [bridge.ConfigChecker].
func (a *Adapter) CheckConfig(config json.RawMessage) []error {
	_, faults := ReadConfig(config)
	if err := agentcard.CheckPins(config); err != nil {
		faults = append(faults, err)
	}
	return faults
}

// ReadConfig reads config, a JSON object or nothing, and gives every fault of it
// at once. The members are method, version, a2a, binding, url, tenant, parts,
// send, stream, batch, and card_keys, which is not for calls.
func ReadConfig(config json.RawMessage) (Config, []error) {
	var cfg Config
	if len(config) == 0 {
		return cfg, nil
	}
	raw, err := bridge.CheckJSON("protocol_config", config)
	if err != nil {
		return cfg, []error{parley.Errorf(parley.CodeInvalid, "%w", err)}
	}
	if string(raw) == "null" {
		return cfg, nil
	}
	if raw[0] != '{' {
		return cfg, []error{parley.Errorf(parley.CodeInvalid, "protocol_config must be a JSON object")}
	}
	var faults []error
	seen := map[string]bool{}
	for name, value := range bridge.Members(raw) {
		member := string(name)
		fault := "stands more than once"
		if !seen[member] {
			fault = cfg.set(member, value)
		}
		seen[member] = true
		if fault != "" {
			faults = append(faults, parley.Errorf(parley.CodeInvalid, "protocol_config.%s: %s", member, fault))
		}
	}
	return cfg, append(faults, cfg.clashes()...)
}

// set takes one member and gives what is wrong with it.
func (c *Config) set(member string, value []byte) (fault string) {
	switch member {
	case "batch":
		return c.setBatch(value)
	case "card_keys":
		return "" // for whoever reads the card
	}
	setters := map[string]func(string) string{
		"method": c.setMethod, "version": c.setVersion, "a2a": c.setDialect, "binding": c.setBinding, "url": c.setURL,
		"tenant": c.setTenant, "parts": c.setParts, "send": c.setSend, "stream": c.setStream,
	}
	set := setters[member]
	if set == nil {
		return "is unknown; known are method, version, a2a, binding, url, tenant, parts, send, stream, batch, card_keys"
	}
	text, isText := bridge.Text(value)
	if !isText {
		return "must be a string"
	}
	return set(text)
}

func (c *Config) setMethod(text string) string {
	if text == "" || strings.TrimSpace(text) != text {
		return "must be the name of a JSON-RPC method"
	}
	if strings.HasPrefix(text, "rpc.") {
		return "names that begin with rpc. belong to JSON-RPC itself"
	}
	c.Method = text
	return ""
}

func (*Config) setVersion(text string) string {
	if text != "2.0" {
		return `is the version of JSON-RPC and can only be "2.0"; the version of A2A is in protocol_config.a2a`
	}
	return ""
}

func (c *Config) setDialect(text string) string {
	switch text {
	case "auto":
		c.Auto = true
	case string(V03), string(V10):
		c.Version = Version(text)
	default:
		return `must be "auto", "0.3" (also for 0.2) or "1.0"`
	}
	return ""
}

func (c *Config) setBinding(text string) string {
	for _, b := range []Binding{BindingJSONRPC, BindingREST, BindingGRPC} {
		if strings.EqualFold(text, string(b)) {
			c.Binding = b
			return ""
		}
	}
	return `must be "JSONRPC", "HTTP+JSON" or "GRPC"`
}

func (c *Config) setURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case hostAndPort(text): // clashes sees whether it is for gRPC
	case err != nil, u.Scheme == "":
		return "must be a whole URL"
	case u.User != nil:
		return "holds a user name; put credentials into the agent's auth"
	}
	c.URL = text
	return ""
}

// hostAndPort says that text is an address as agent cards have it for gRPC.
func hostAndPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsAny(host, "/@?# ") || strings.EqualFold(host, "stdio") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func (c *Config) setTenant(text string) string {
	if text == "" || len(text) > 256 {
		return "must have 1 to 256 bytes"
	}
	c.Tenant = text
	return ""
}

func (c *Config) setParts(text string) string {
	switch mode := PartsMode(text); mode {
	case PartsText, PartsData, PartsList, PartsAuto:
		c.Parts = mode
		return ""
	}
	return `must be "text", "data", "parts" or "auto"`
}

func (c *Config) setSend(text string) string {
	switch mode := SendMode(text); mode {
	case SendNonblocking, SendBlocking, SendStream:
		c.Send = mode
		return ""
	}
	return `must be "nonblocking", "blocking" or "stream"`
}

func (c *Config) setStream(text string) string {
	switch text {
	case streamAuto, streamOn, streamOff:
		c.Stream = text
		return ""
	}
	return `must be "auto", "on" or "off"`
}

func (c *Config) setBatch(value []byte) string {
	n, err := strconv.Atoi(string(value))
	if err != nil || n != 0 && (n < 2 || n > maxBatch) {
		return "must be a number from 2 to 100, or 0 for no batches"
	}
	c.Batch = n
	return ""
}

// clashes are the members that do not go together.
func (c *Config) clashes() []error {
	var faults []error
	add := func(member, text string) {
		faults = append(faults, parley.Errorf(parley.CodeInvalid, "protocol_config.%s: %s", member, text))
	}
	over := c.Binding == BindingREST || c.Binding == BindingGRPC
	if c.Version == V03 {
		if over {
			add("binding", "over HTTP+JSON and gRPC only A2A 1.0 is spoken here; set a2a to \"1.0\", or binding to \"JSONRPC\"")
		}
		if c.Tenant != "" {
			add("tenant", "tenants belong to A2A 1.0")
		}
	}
	if c.Version == V10 && c.Method != "" {
		add("method", "is fixed in A2A 1.0; it can only be chosen for 0.3")
	}
	if c.Binding != BindingGRPC && hostAndPort(c.URL) {
		add("url", "must be a whole URL; a host and a port alone are for binding \"GRPC\"")
	}
	if over && c.Batch > 0 {
		add("batch", "belongs to JSON-RPC")
	}
	if c.Send == SendStream && c.Stream == streamOff {
		add("send", "is \"stream\", but stream is \"off\"")
	}
	return faults
}

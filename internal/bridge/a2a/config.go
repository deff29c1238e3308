package a2a

import (
	"encoding/json"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Config is a protocol_config that was read.
type Config struct {
	// Method is the JSON-RPC method that sends a message (AD-3).
	Method string
}

const defaultMethod = "message/send"

// CheckConfig implements [bridge.ConfigChecker].
func (a *Adapter) CheckConfig(config json.RawMessage) []error {
	_, faults := ReadConfig(config)
	return faults
}

// ReadConfig reads config, a JSON object or nothing, and gives every fault of it
// at once. The members are method, version, a2a, binding, tenant and parts.
func ReadConfig(config json.RawMessage) (Config, []error) {
	cfg := Config{Method: defaultMethod}
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
	return cfg, faults
}

// set takes one member and gives what is wrong with it.
func (c *Config) set(member string, value []byte) (fault string) {
	text, isText := bridge.Text(value)
	switch member {
	case "method", "version", "a2a", "binding", "tenant", "parts":
		if !isText {
			return "must be a string"
		}
	default:
		return "is unknown; known are method, version, a2a, binding, tenant, parts"
	}
	switch member {
	case "method":
		if text == "" || strings.TrimSpace(text) != text {
			return "must be the name of a JSON-RPC method"
		}
		if strings.HasPrefix(text, "rpc.") {
			return "names that begin with rpc. belong to JSON-RPC itself"
		}
		c.Method = text
	case "version":
		if text != "2.0" {
			return `is the version of JSON-RPC and can only be "2.0"`
		}
	case "a2a":
		switch text {
		case "auto", "0.3":
		case "1.0":
			return `A2A 1.0 is not in this version; use "auto" or "0.3"`
		default:
			return `must be "auto" or "0.3"`
		}
	case "binding":
		if !strings.EqualFold(text, "jsonrpc") {
			return `only "jsonrpc" is in this version`
		}
	case "tenant":
		return "tenants belong to A2A 1.0, which is not in this version"
	case "parts":
		if text != "text" {
			return `only "text" is in this version`
		}
	}
	return ""
}

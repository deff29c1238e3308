package sample

import (
	"encoding/json"
	"strings"

	"github.com/parley-project/parley"
)

// dialect writes A2A 1.0, or 0.3, over JSON-RPC.
type dialect struct{ modern bool }

// taskView is a task at one time.
type taskView struct {
	id, contextID, state, at string
	// parts are the artifact's, question what the agent wants to know.
	parts    []json.RawMessage
	question string
}

// wrapped is v as a result: 1.0 says what it is by the name of a member.
func (d dialect) wrapped(kind string, v map[string]any) map[string]any {
	if !d.modern {
		return v
	}
	return map[string]any{kind: v}
}

// kinded adds the member by which 0.3 says what v is.
func (d dialect) kinded(kind string, v map[string]any) map[string]any {
	if !d.modern {
		v["kind"] = kind
	}
	return v
}

func (d dialect) task(v taskView) map[string]any {
	t := map[string]any{"id": v.id, "contextId": v.contextID, "status": d.state(v)}
	if v.state == stateCompleted {
		t["artifacts"] = []any{artifact(v)}
		t["history"] = []any{d.said(v, v.parts)}
	}
	return d.kinded("task", t)
}

// state is the status of a task.
func (d dialect) state(v taskView) map[string]any {
	name := v.state
	if d.modern {
		name = "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	}
	s := map[string]any{"state": name, "timestamp": v.at}
	if v.question != "" {
		s["message"] = d.said(v, []json.RawMessage{d.text(v.question)})
	}
	return s
}

// said is a message of the agent's.
func (d dialect) said(v taskView, parts []json.RawMessage) map[string]any {
	role := "agent"
	if d.modern {
		role = "ROLE_AGENT"
	}
	return d.kinded("message", map[string]any{
		"role": role, "messageId": "reply-" + v.id, "taskId": v.id, "contextId": v.contextID, "parts": parts,
	})
}

func artifact(v taskView) map[string]any {
	return map[string]any{"artifactId": "reply", "name": "reply", "parts": v.parts}
}

// artifact is the event that brings all of the output.
func (d dialect) artifact(v taskView) map[string]any {
	return d.kinded("artifact-update", map[string]any{
		"taskId": v.id, "contextId": v.contextID, "artifact": artifact(v), "append": false, "lastChunk": true,
	})
}

// status is the last event of a stream.
func (d dialect) status(v taskView) map[string]any {
	s := map[string]any{"taskId": v.id, "contextId": v.contextID, "status": d.state(v)}
	if !d.modern {
		s["final"] = true
	}
	return d.kinded("status-update", s)
}

func (d dialect) text(s string) json.RawMessage {
	b, _ := json.Marshal(d.kinded("text", map[string]any{"text": s})) // strings can be written
	return b
}

// part puts one JSON value into a part: strings as text, and in 0.3, whose data
// are objects, all else that is none as the text of its JSON.
func (d dialect) part(value json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(value, &text) == nil && string(value) != "null" {
		return d.text(text)
	}
	if !d.modern && !strings.HasPrefix(strings.TrimSpace(string(value)), "{") {
		return d.text(string(value))
	}
	b, _ := json.Marshal(d.kinded("data", map[string]any{"data": value})) // was decoded before
	return b
}

// card has the members of both dialects, which have one address.
func (m *Mock) card(url string) map[string]any {
	about := "Answers as it was told to, for trying workflows."
	modes := []string{"text/plain", "application/json"}
	face := func(version string) map[string]string {
		return map[string]string{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version}
	}
	c := map[string]any{
		"protocolVersion": "0.3.0", "name": m.cfg.Name, "version": "1.0.0", "description": about,
		"url": url, "preferredTransport": "JSONRPC", "supportedInterfaces": []any{face("1.0"), face("0.3")},
		"capabilities":      map[string]any{"streaming": m.cfg.Stream, "pushNotifications": false},
		"defaultInputModes": modes, "defaultOutputModes": modes,
		"skills": []any{map[string]any{"id": "mock", "name": "Mock", "description": about, "tags": []string{"test"}}},
	}
	if !m.cfg.Key.IsZero() {
		const scheme = string(parley.AuthBearer)
		c["securitySchemes"] = map[string]any{scheme: map[string]any{
			"type": "http", "scheme": scheme, "httpAuthSecurityScheme": map[string]string{"scheme": "Bearer"},
		}}
		c["security"] = []any{map[string]any{scheme: []string{}}}
		c["securityRequirements"] = []any{map[string]any{"schemes": map[string]any{scheme: map[string]any{"list": []string{}}}}}
	}
	return c
}

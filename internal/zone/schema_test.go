package zone_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/parley-project/parley/internal/zone"
)

// compile compiles every schema of a profile, which also checks it against its
// meta-schema.
func compile(t *testing.T, profile zone.Profile) map[string]*jsonschema.Schema {
	t.Helper()
	out := make(map[string]*jsonschema.Schema)
	for name, text := range zone.Schemas(profile) {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft2020)
		if err := c.AddResource(name, doc); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = s
	}
	return out
}

// TestZN2_Schemas holds the generated schemas to what the codec takes and writes.
func TestZN2_Schemas(t *testing.T) {
	strict, relaxed := compile(t, zone.ProfileStrict), compile(t, zone.ProfileRelaxed)
	const all = `{"channel":"C1","text":"x","bot_token":"b","correlation_id":"c","thread_ts":"1","team_id":"T1","user_id":"U1","attachments":[{"id":"F1","size":5}],"more":1}`
	for _, tc := range []struct {
		schema, value   string
		strict, relaxed bool
	}{
		{"execute_task", all, true, true},
		{"execute_task", `{"text":"x"}`, false, true},
		{"execute_task", `{"text":" ","channel":"C1","bot_token":"b"}`, false, false},
		{"execute_task", `{"channel":"C1","bot_token":"b"}`, false, false},
		{"execute_task", `{"text":5,"channel":"C1","bot_token":"b"}`, false, false},
		{"execute_task", `{"text":"x","channel":"","bot_token":"b"}`, false, true},
		{"execute_task", `{"text":"x","channel":"C1","bot_token":"b","attachments":[{"size":"5"}]}`, false, false},
		{"execute_task", `{"text":"x","channel":"C1","bot_token":"b","correlation_id":"` + strings.Repeat("c", 257) + `"}`, false, false},
		{"execute_task", `[]`, false, false},
		{"get_async_task_result", `{"task_id":"x"}`, true, true},
		{"get_async_task_result", `{}`, false, false},
		{"execute_task.result", `{"status":"success","response_text":""}`, true, true},
		{"execute_task.result", `{"status":"success"}`, false, false},
		{"execute_task.result", `{"status":"success","response_text":"","bot_token":"b"}`, false, false},
		{"execute_task.result", `{"status":"accepted","task_id":"x","poll_after_ms":2000}`, true, true},
		{"execute_task.result", `{"status":"accepted"}`, false, false},
		{"execute_task.result", `{"status":"error"}`, false, false},
		{"get_async_task_result.result", `{"status":"running","poll_after_ms":2000}`, true, true},
		{"get_async_task_result.result", `{"status":"completed","result":{"status":"success","response_text":"x"}}`, true, true},
		{"get_async_task_result.result", `{"status":"completed"}`, false, false},
		{"get_async_task_result.result", `{"status":"failed","error":{"code":-32000,"message":"m","data":{"reason":"task_failed","correlation_id":"c"}}}`, true, true},
		{"get_async_task_result.result", `{"status":"failed"}`, false, false},
		{"get_agent_card.result", `{"name":"x"}`, true, true},
		{"error", `{"code":-32602,"message":"m","data":{"reason":"invalid_params","correlation_id":"c","missing":["text"]}}`, true, true},
		{"error", `{"code":-32602,"message":"m","data":{"reason":"odd","correlation_id":"c"}}`, false, false},
		{"error", `{"code":-32602,"message":"m"}`, false, false},
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(tc.value))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []struct {
			profile zone.Profile
			schema  *jsonschema.Schema
			want    bool
		}{{zone.ProfileStrict, strict[tc.schema], tc.strict}, {zone.ProfileRelaxed, relaxed[tc.schema], tc.relaxed}} {
			if err := p.schema.Validate(v); (err == nil) != p.want {
				t.Errorf("%s, %s %s: %v", p.profile, tc.schema, tc.value, err)
			}
			if tc.schema != "execute_task" {
				continue
			}
			body := `{"jsonrpc":"2.0","method":"execute_task","params":` + tc.value + `,"id":1}`
			if _, fault := zone.NewCodec(p.profile).DecodeRequest([]byte(body)); (fault == nil) != p.want {
				t.Errorf("%s: the codec says of %s: %v", p.profile, tc.value, fault)
			}
		}
	}
}

// TestZN2_OpenRPC looks at the document of the contract: by-name params in the order
// of the types, each with its schema, and every code of an error.
func TestZN2_OpenRPC(t *testing.T) {
	for profile, required := range map[zone.Profile]string{zone.ProfileStrict: "channel text bot_token", zone.ProfileRelaxed: "text"} {
		var doc struct {
			OpenRPC string `json:"openrpc"`
			Info    struct{ Title, Version string }
			Methods []struct {
				Name           string
				ParamStructure string
				Params         []struct {
					Name     string
					Required bool
					Schema   json.RawMessage
				}
				Result struct {
					Name   string
					Schema json.RawMessage
				}
				Errors []struct {
					Code    int
					Message string
				}
			}
		}
		if err := json.Unmarshal(zone.OpenRPC(profile), &doc); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(doc.OpenRPC, "1.") || doc.Info.Title == "" || doc.Info.Version == "" || len(doc.Methods) != 3 {
			t.Errorf("%+v", doc)
		}
		var names, needed []string
		for _, p := range doc.Methods[0].Params {
			names = append(names, p.Name)
			if p.Required {
				needed = append(needed, p.Name)
			}
			if len(p.Schema) < 10 {
				t.Errorf("%s has the schema %s", p.Name, p.Schema)
			}
		}
		if got := strings.Join(names, " "); got != "channel text bot_token correlation_id thread_ts attachments team_id user_id" {
			t.Errorf("params %s", got)
		}
		if got := strings.Join(needed, " "); got != required {
			t.Errorf("%s: required %s", profile, got)
		}
		codes := make(map[int]bool)
		for _, m := range doc.Methods {
			if m.ParamStructure != "by-name" || m.Result.Name == "" || len(m.Result.Schema) < 10 || strings.HasPrefix(m.Name, "rpc.") {
				t.Errorf("%+v", m)
			}
			for _, e := range m.Errors {
				codes[e.Code] = true
			}
		}
		for _, code := range []int{-32700, -32600, -32601, -32602, -32603, -32000, -32001} {
			if !codes[code] {
				t.Errorf("code %d is missing", code)
			}
		}
	}
}

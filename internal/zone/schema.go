package zone

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/parley-project/parley/jsonrpc"
)

// Schemas returns the JSON Schemas (2020-12) of the contract by their names: the
// params of each method by the method's name, with ".result" for its result, and
// "error". They are made from the Go types that read and write the messages.
func Schemas(profile Profile) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage)
	for name, s := range schemas(profile) {
		s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		s["title"] = name
		out[name] = Document(s)
	}
	return out
}

type schema = map[string]any

func schemas(profile Profile) map[string]schema {
	params := schemaOf(reflect.TypeFor[taskWire]())
	params["required"] = profile.required()
	property(params, "text")["pattern"] = `[^\s\p{Z}]`
	property(params, "correlation_id")["maxLength"] = MaxCorrelationID
	if profile == ProfileStrict {
		property(params, "channel")["minLength"] = 1
		property(params, "bot_token")["minLength"] = 1
	}

	query := schemaOf(reflect.TypeFor[Query]())
	query["required"] = []string{"task_id"}
	property(query, "task_id")["minLength"] = 1

	async := schemaOf(reflect.TypeFor[AsyncResult]())
	async["required"] = []string{"status"}
	property(async, "status")["enum"] = []Status{StatusRunning, StatusCompleted, StatusFailed, StatusExpired}
	property(async, "result")["properties"] = resultSchema()["properties"]
	async["properties"].(schema)["result"] = resultSchema()
	async["properties"].(schema)["error"] = errorSchema()
	async["allOf"] = []schema{when(StatusCompleted, "result"), when(StatusFailed, "error")}

	return map[string]schema{
		MethodExecuteTask:              params,
		MethodExecuteTask + ".result":  resultSchema(),
		MethodGetResult:                query,
		MethodGetResult + ".result":    async,
		MethodGetAgentCard + ".result": {"type": "object", "description": "the agent card of A2A"},
		"error":                        errorSchema(),
	}
}

func resultSchema() schema {
	s := schemaOf(reflect.TypeFor[Result]())
	s["required"] = []string{"status"}
	property(s, "status")["enum"] = []Status{StatusSuccess, StatusAccepted}
	delete(s["properties"].(schema), "error_code")
	delete(s["properties"].(schema), "error_message")
	s["properties"].(schema)["bot_token"] = false
	s["allOf"] = []schema{when(StatusSuccess, "response_text"), when(StatusAccepted, "task_id")}
	return s
}

func errorSchema() schema {
	s := schemaOf(reflect.TypeFor[errorWire]())
	data := schemaOf(reflect.TypeFor[errorData]())
	data["required"] = []string{"reason", "correlation_id"}
	property(data, "reason")["enum"] = Reasons()
	s["properties"].(schema)["data"] = data
	s["required"] = []string{"code", "message", "data"}
	return s
}

// when says that a member is there with a status.
func when(status Status, member string) schema {
	return schema{
		"if":   schema{"properties": schema{"status": schema{"const": status}}},
		"then": schema{"required": []string{member}},
	}
}

func property(s schema, name string) schema { return s["properties"].(schema)[name].(schema) }

// schemaOf describes a Go type as encoding/json writes it.
func schemaOf(t reflect.Type) schema {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Int, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Slice:
		switch t {
		case reflect.TypeFor[json.RawMessage]():
			return schema{}
		case reflect.TypeFor[[]byte]():
			return schema{"type": "string", "contentEncoding": "base64"}
		}
		return schema{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Struct:
		properties := schema{}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || name == "" {
				continue
			}
			s := schemaOf(f.Type)
			if doc := f.Tag.Get("doc"); doc != "" {
				s["description"] = doc
			}
			properties[name] = s
		}
		return schema{"type": "object", "properties": properties}
	}
	panic("zone: no schema for " + t.String())
}

// OpenRPC returns the OpenRPC document of the contract.
func OpenRPC(profile Profile) json.RawMessage {
	all := schemas(profile)
	return Document(schema{
		"openrpc": "1.3.2",
		"info": schema{
			"title": "zone connection", "version": "1",
			"description": "What a Verification Zone sends to an Execution Zone. JSON-RPC 2.0 over POST, one request and one response; no batches, no notifications.",
		},
		"methods": []schema{
			method(MethodExecuteTask, all, "Does a task, or accepts it. The id is a UUID; a request that is sent again with the same id is the same task."),
			method(MethodGetResult, all, "Says what became of a task that was accepted, or of a request whose response was lost."),
			method(MethodGetAgentCard, all, "Gives the agent card of the zone."),
		},
		"components": schema{"schemas": schema{"error": all["error"]}},
	})
}

func method(name string, all map[string]schema, summary string) schema {
	params := []schema{}
	if s, ok := all[name]; ok {
		required, _ := s["required"].([]string)
		for f := range paramsType(name).Fields() {
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := schema{"name": member, "schema": property(s, member)}
			for _, r := range required {
				if r == member {
					p["required"] = true
				}
			}
			params = append(params, p)
		}
	}
	return schema{
		"name": name, "summary": summary, "paramStructure": "by-name", "params": params,
		"result": schema{"name": name + ".result", "schema": all[name+".result"]},
		"errors": faults(),
	}
}

func paramsType(name string) reflect.Type {
	if name == MethodExecuteTask {
		return reflect.TypeFor[taskWire]()
	}
	return reflect.TypeFor[Query]()
}

// faults lists the codes of errors once each, with the first reason that has it.
func faults() []schema {
	var out []schema
	seen := make(map[jsonrpc.Code]bool)
	for _, r := range Reasons() {
		if e := NewError(r); !seen[e.Code] {
			seen[e.Code] = true
			message := e.Message
			if e.Code == CodeServer {
				message = "Server error; data.reason tells more"
			}
			out = append(out, schema{"code": e.Code, "message": message})
		}
	}
	return out
}

// Document gives the JSON text of what always has one: maps and lists of strings,
// numbers, and values that were read before. It panics otherwise.
func Document(v any) json.RawMessage {
	text, err := marshal(v)
	if err != nil { // maps of strings always encode
		panic("zone: " + err.Error())
	}
	return text
}

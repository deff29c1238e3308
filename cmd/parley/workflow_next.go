package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/parley-project/parley/internal/workflow"
)

// maxNextNames bounds the names of an input that a proposed command has.
const maxNextNames = 8

// nextStart proposes to start a workflow, with the input that its document requires.
func (a *app) nextStart(ref, file string, source []byte) {
	a.next("parley run start %s%s --wait", ref, inputFlag(file, source))
}

// inputFlag is " --input JSON" with the names that a document requires and gives no
// default, each with a value of its type; "" if a run can be started without.
func inputFlag(file string, source []byte) string {
	d, problems := workflow.Parse(workflow.ParseOptions{File: file}, source)
	if d == nil || errorCount(problems) > 0 || d.Input == nil {
		return ""
	}
	if _, err := d.CheckInput(nil, workflow.DefaultRunLimits().Value); err == nil {
		return ""
	}
	switch members, ok := exampleMembers(d.Input.Raw()); {
	case !ok:
		return " --input @FILE"
	case members == "":
		return " --input '{...}'"
	default:
		return " --input '{" + members + "}'"
	}
}

// dataFlag is " --data JSON" with a value for the form of an approval; "" if the form
// does not say that there has to be one.
func dataFlag(form []byte) string {
	var schema struct {
		Type json.RawMessage `json:"type"`
	}
	if json.Unmarshal(form, &schema) != nil || schema.Type == nil || bytes.Contains(schema.Type, []byte(`"null"`)) {
		return ""
	}
	value := string(exampleOf(schema.Type))
	if value == "{}" {
		members, ok := exampleMembers(form)
		if !ok {
			return " --data @FILE"
		}
		value = "{" + members + "}"
	}
	return " --data '" + value + "'"
}

// exampleMembers are the members that the schema of an object requires and gives no
// default, each with a value of its type. ok is false if a shell could not be told them.
func exampleMembers(object []byte) (members string, ok bool) {
	var schema struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Type    json.RawMessage   `json:"type"`
			Enum    []json.RawMessage `json:"enum"`
			Const   json.RawMessage   `json:"const"`
			Default json.RawMessage   `json:"default"`
		} `json:"properties"`
	}
	if json.Unmarshal(object, &schema) != nil {
		return "", true
	}
	var list []string
	for _, name := range schema.Required {
		p := schema.Properties[name]
		if p.Default != nil || len(list) == maxNextNames {
			continue
		}
		value := p.Const
		if value == nil && len(p.Enum) > 0 {
			value = p.Enum[0]
		}
		if value == nil {
			value = exampleOf(p.Type)
		}
		key, err := toJSON(name)
		if err != nil || strings.Contains(string(key)+string(value), "'") {
			return "", false
		}
		list = append(list, string(key)+": "+string(value))
	}
	return strings.Join(list, ", "), true
}

// exampleOf is a value of a JSON type, or of the first one of several.
func exampleOf(kind json.RawMessage) json.RawMessage {
	var one string
	var several []string
	if json.Unmarshal(kind, &one) != nil && json.Unmarshal(kind, &several) == nil {
		one = slices.Concat(several, []string{""})[0]
	}
	switch one {
	case "number", "integer":
		return json.RawMessage("1")
	case "boolean":
		return json.RawMessage("true")
	case "array":
		return json.RawMessage("[]")
	case "object":
		return json.RawMessage("{}")
	case "null":
		return json.RawMessage("null")
	}
	return json.RawMessage(`"..."`)
}

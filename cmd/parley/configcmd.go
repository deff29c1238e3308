package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/registry"
)

// newConfigCommand makes `parley config`.
func newConfigCommand(a *app) *cobra.Command {
	group := newGroup("config", "The configuration of parley serve", `
  parley config view --config parley.yaml --origin`)
	var origin bool
	view := &cobra.Command{
		Use: "view", Short: "Print the effective configuration, secrets masked",
		Long: `Print every setting with the value that parley serve would take with the same
file, variables and flags, and the agents of the file. It is a configuration file
itself, unless passwords or keys stand in what was read instead of references:
they are masked, and a comment says where.`,
		Example: `  parley config view > parley.yaml
  parley config view --config parley.yaml --origin
  parley config view --config parley.yaml -o json`,
		Args: need(),
	}
	f := addSettings(view)
	view.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	view.RunE = func(*cobra.Command, []string) error { return a.configView(f, origin) }
	group.AddCommand(view)
	return group
}

func (a *app) configView(f *settingFlags, origin bool) error {
	l, err := f.load(a)
	if err != nil {
		return err
	}
	for _, note := range l.Notes {
		a.note("note: %s", note)
	}
	values, err := a.configValues(l)
	if err != nil {
		return err
	}
	switch a.flags.output {
	case "json", "jsonl":
		if a.flags.output == "json" {
			return a.data(values)
		}
		for _, v := range values {
			if err := a.data(v); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := configYAML(values, origin)
	if err == nil {
		_, err = a.stdout.Write(text)
	}
	return err
}

// configValues gives all settings, and behind them the agents of the file. Agents
// that serve would refuse are refused.
func (a *app) configValues(l *config.Loaded) ([]config.Value, error) {
	if _, err := a.configuredAgents(l); err != nil {
		return nil, err
	}
	values := l.View()
	if agents := registry.ShowSection(l.Source); agents.JSON != nil {
		values = append(values, config.Value{
			Path: "agents", Value: agents.JSON, Origin: fmt.Sprintf("%s:%d", l.File, agents.Line), Masked: agents.Masked,
		})
	}
	return values, nil
}

// maskedComment stands where a value is no longer what was read.
const maskedComment = "A secret is masked here: write a reference to it (env:NAME or file:PATH) before you use this file."

// configYAML writes values as a configuration file.
func configYAML(values []config.Value, origin bool) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, v := range values {
		at := root
		path := strings.Split(v.Path, ".")
		for _, name := range path[:len(path)-1] {
			at = sectionOf(at, name)
		}
		value, err := settingNode(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Path, err)
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: path[len(path)-1]}
		if v.Masked {
			key.HeadComment = maskedComment
		}
		if origin {
			// Behind agents, it would stand in their first line.
			line := value
			if value.Kind == yaml.SequenceNode && value.Style != yaml.FlowStyle {
				line = key
			}
			line.LineComment = v.Origin
		}
		at.Content = append(at.Content, key, value)
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

// settingNode is a value as it stands in a configuration file.
func settingNode(v config.Value) (*yaml.Node, error) {
	if raw, ok := v.Value.(json.RawMessage); ok {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		return yamlNode(d)
	}
	value := new(yaml.Node)
	if err := value.Encode(v.Value); err != nil {
		return nil, err
	}
	if value.Kind == yaml.SequenceNode {
		value.Style = yaml.FlowStyle
	}
	return value, nil
}

// sectionOf gives the member of that name, a mapping, making it if need be.
func sectionOf(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, section)
	return section
}

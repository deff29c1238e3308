package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley/internal/config"
)

// newConfigCommand makes `parley config`.
func newConfigCommand(a *app) *cobra.Command {
	group := newGroup("config", "The configuration of parley serve", `
  parley config view --config parley.yaml --origin`)
	var origin bool
	view := &cobra.Command{
		Use: "view", Short: "Print the effective configuration, secrets masked",
		Long: `Print every setting with the value that parley serve would take with the same
file, variables and flags. It is a configuration file itself.`,
		Example: `  parley config view > parley.yaml
  parley config view --config parley.yaml --origin
  parley config view --config parley.yaml -o json`,
		Args: cobra.NoArgs,
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
	values := l.View()
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

// configYAML writes values as a configuration file.
func configYAML(values []config.Value, origin bool) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, v := range values {
		at := root
		path := strings.Split(v.Path, ".")
		for _, name := range path[:len(path)-1] {
			at = sectionOf(at, name)
		}
		var value yaml.Node
		if err := value.Encode(v.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Path, err)
		}
		if value.Kind == yaml.SequenceNode {
			value.Style = yaml.FlowStyle
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, Value: path[len(path)-1]}
		if origin {
			value.LineComment = v.Origin
		}
		at.Content = append(at.Content, key, &value)
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
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

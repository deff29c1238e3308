package executor

import (
	"fmt"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// startedBy gives what starts runs of a workflow and has to be found by its name.
func startedBy(def *workflow.Definition) (list []store.Trigger) {
	for _, t := range def.Triggers {
		switch {
		case t.Event != nil:
			list = append(list, store.Trigger{Kind: store.TriggerEvent, Name: t.Event.Name})
		case t.Kafka != nil:
			list = append(list, store.Trigger{Kind: store.TriggerKafka, Name: t.Kafka.Topic})
		}
	}
	return list
}

// silent warns of triggers that cannot start anything here.
func (c *Catalog) silent(file string, def *workflow.Definition) (problems parley.Problems) {
	warn := func(i int, member, text, suggestion string) {
		path := fmt.Sprintf("triggers[%d].%s", i, member)
		problems = append(problems, parley.Problem{
			File: file, Path: path, Severity: parley.SeverityWarning, Code: "trigger", Text: path + " " + text, Suggestion: suggestion,
		})
	}
	for i, t := range def.Triggers {
		switch {
		case t.Kafka != nil && c.cfg.Executor.cfg.KafkaTopic == nil:
			warn(i, "kafka", "starts nothing here: there is no Kafka", "set bus.kafka.brokers")
		case t.Kafka != nil:
			if err := c.cfg.Executor.cfg.KafkaTopic(t.Kafka.Topic); err != nil {
				warn(i, "kafka.topic", "starts nothing: "+messageOf(err), "use a topic of its own")
			}
		case t.Webhook != nil && c.cfg.CheckSecret != nil:
			if err := c.cfg.CheckSecret(t.Webhook.Secret); err != nil {
				warn(i, "webhook.secret", "starts nothing here: "+messageOf(err), "")
			}
		}
	}
	return problems
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/server"
)

// newTopicsCommand makes `parley topics`.
func newTopicsCommand(a *app) *cobra.Command {
	group := newGroup("topics", "The topics of the bus on Kafka", `
  parley topics create --config parley.yaml
  parley topics check --config parley.yaml`)
	add := func(use, short string, do func(context.Context, server.KafkaConfig) (server.TopicsReport, error)) {
		cmd := &cobra.Command{
			Use: use, Short: short, Args: need(),
			Example: "  parley topics " + use + " --config parley.yaml\n  parley topics " + use + " --bus.kafka.brokers localhost:9092",
		}
		f := addSettings(cmd)
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.topics(cmd.Context(), f, do) }
		group.AddCommand(cmd)
	}
	add("create", "Make the topics that are missing, and look at all of them", server.CreateTopics)
	add("check", "Look at the topics: what is missing, and what would lose records", server.CheckTopics)
	return group
}

func (a *app) topics(ctx context.Context, f *settingFlags, do func(context.Context, server.KafkaConfig) (server.TopicsReport, error)) error {
	l, err := f.load(a)
	if err != nil {
		return err
	}
	if l.Bus.Kind != config.BusKafka {
		return usagef("bus.kind is %s: there are no topics", l.Bus.Kind).withHint("name the brokers with --bus.kafka.brokers or --config")
	}
	cfg, err := topicsConfig(l)
	if err != nil {
		return err
	}
	report, err := do(ctx, *cfg)
	if err != nil {
		return err
	}
	if a.human() {
		fmt.Fprintln(a.stdout, cleanLines(strings.TrimRight(report.String(), "\n")))
	} else if err := a.data(report); err != nil {
		return err
	}
	if err := report.Err(); err != nil {
		return err
	}
	return nil
}

// topicsConfig is the bus of which the topics are looked at, for processes with these roles.
func topicsConfig(l *config.Loaded) (*server.KafkaConfig, error) {
	cfg, err := kafkaConfig(l.Bus.Kafka, func(parley.Secret) {})
	if err != nil {
		return nil, err
	}
	cfg.Written = server.Config{Roles: roles(l), NoLedger: l.Bridge.Ledger == config.LedgerNone, DatabaseURL: l.Database.URL}.Written()
	switch {
	case l.Bridge.Ledger == config.LedgerNone:
		cfg.Used = server.LedgerlessSubjects()
	case l.Bus.Kafka.Requests:
		cfg.Used = server.RequestsSubjects()
	}
	return cfg, nil
}

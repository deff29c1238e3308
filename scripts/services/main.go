// Command services runs a command beside one PostgreSQL and one Kafka, which
// its tests find by PARLEY_TEST_POSTGRES and PARLEY_TEST_KAFKA, and stops them
// when it ends:
//
//	services [-durable] COMMAND [ARGUMENT...]
//
// With -durable PostgreSQL syncs what it commits and has its usual memory, for
// measurements; tests do without. A variable that is set already is left as it is, and nothing started for it.
// The exit code is that of the command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/pgtest"
)

const (
	postgres = "PARLEY_TEST_POSTGRES"
	kafka    = "PARLEY_TEST_KAFKA"
	// startWithin bounds the start of both, with the download at the first time.
	startWithin = 10 * time.Minute
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	durable := len(args) > 0 && args[0] == "-durable"
	if durable {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: services [-durable] COMMAND [ARGUMENT...]")
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	s := &services{}
	if durable {
		s.postgres = pgtest.Options{Durable: true, Settings: map[string]string{"shared_buffers": "128MB"}}
	}
	defer s.stop()
	if err := s.start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		return 1
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		return 1
	}
	return 0
}

// services are the servers that were started.
type services struct {
	postgres pgtest.Options

	mu    sync.Mutex // protects what follows
	env   []string
	stops []func() error
}

// start starts what no variable names, both at a time.
func (s *services) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	var errs [2]error
	var wg sync.WaitGroup
	if os.Getenv(postgres) == "" {
		wg.Go(func() {
			url, stop, err := pgtest.Serve(ctx, s.postgres)
			errs[0] = s.add(postgres+"="+url, stop, err)
		})
	}
	if os.Getenv(kafka) == "" {
		wg.Go(func() {
			brokers, stop, err := kafkatest.Serve(ctx)
			errs[1] = s.add(kafka+"="+strings.Join(brokers, ","), func() error { stop(); return nil }, err)
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

func (s *services) add(env string, stop func() error, err error) error {
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env = append(s.env, env)
	s.stops = append(s.stops, stop)
	return nil
}

func (s *services) stop() {
	for _, stop := range s.stops {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "services:", err)
		}
	}
}

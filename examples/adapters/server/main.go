// Command server is a Parley with one more protocol: graphql, of
// examples/adapters/graphql. Everything else is as in parley dev.
//
//	go run ./examples/adapters/server --data ./.parley
//	parley agent add http://127.0.0.1:9100/graphql --name mine --protocol graphql
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/parley-project/parley/examples/adapters/graphql"
	"github.com/parley-project/parley/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	data := flags.String("data", "./.parley", "folder of the database and the keys")
	listen := flags.String("listen", "127.0.0.1:8420", "address of the API")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := server.New(ctx, server.Config{
		Data: *data, Listen: *listen, EgressAllow: []string{"127.0.0.0/8"},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Adapters: []server.NewAdapter{graphql.New},
	})
	if err != nil {
		return err
	}
	fmt.Println("serving at", s.URL())
	return s.Run(ctx)
}

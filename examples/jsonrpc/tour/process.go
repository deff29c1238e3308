package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/parley-project/parley/jsonrpc"
)

// process starts a server that speaks over its standard input and output, such
// as "parley rpc serve stdio:", and calls it.
func process(ctx context.Context, out io.Writer, command []string) error {
	child, err := jsonrpc.Start(ctx, exec.Command(command[0], command[1:]...), jsonrpc.SubprocessConfig{
		StderrLine: func(line []byte) { fmt.Fprintf(out, "stderr: %s\n", line) },
	})
	if err != nil {
		return err
	}
	conn := jsonrpc.NewConn(child, jsonrpc.Config{})
	sum, err := jsonrpc.Call[float64](ctx, conn, "sum", []int{1, 2, 4})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "sum:", sum)
	return conn.Close() // ends its input, and waits for it to exit
}

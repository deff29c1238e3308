package pgtest

import (
	"context"
	"errors"
	"maps"
)

// Serve starts a server for several processes, which find it by
// PARLEY_TEST_POSTGRES = url. It takes 600 connections, unless o says how many.
// stop ends it; it ends with this process, too.
func Serve(ctx context.Context, o Options) (url string, stop func() error, err error) {
	all := map[string]string{"max_connections": "600"}
	maps.Copy(all, o.Settings)
	o.Settings = all
	c, err := newCluster(ctx, o)
	if err != nil {
		return "", nil, err
	}
	return c.url("postgres"), func() error { return errors.Join(c.end(), c.remove()) }, nil
}

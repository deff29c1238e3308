package kafkatest

import "context"

// Serve starts a plain broker for several test processes, which find it by
// [AddressEnv] = the addresses with commas between. stop ends it; it ends with
// this process, too.
func Serve(ctx context.Context) (brokers []string, stop func(), err error) {
	c, err := start(ctx, Options{Nodes: 1})
	if err != nil {
		return nil, nil, err
	}
	return c.Brokers(), c.close, nil
}

package bridge

import (
	"context"
	"errors"
	"net"
	"time"
)

// dialers open the connections of an Exchange.
type dialers struct {
	plain, secure func(ctx context.Context, network, address string) (net.Conn, error)
}

// Dial opens a TCP connection to address, a host and a port, for a transport
// that is not HTTP's: through the dialer of [ExchangeConfig], or under its
// egress policy. secure says that TLS will be spoken over it; Dial does not
// speak it. A connection takes 10 s at most. The caller closes it.
func (x *Exchange) Dial(ctx context.Context, address string, secure bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if secure {
		return x.dialers.secure(ctx, "tcp", address)
	}
	return x.dialers.plain(ctx, "tcp", address)
}

// Lifetime is how long a connection that [Exchange.Dial] has opened now is to be
// used for calls that begin: [ExchangeConfig.MaxAge], less up to a fifth by chance.
// What it carries then is carried to its end.
func (x *Exchange) Lifetime() time.Duration { return x.pools.life.draw() }

// RefusedByEgress reports whether the egress policy refused the connection that
// err is about. That is no matter of time: somebody has to change a setting.
func RefusedByEgress(err error) bool { return errors.Is(err, errEgress) }

// Limits gives what bounds an exchange, with all defaults filled in, so that
// other transports keep to the same bounds.
func (x *Exchange) Limits() ExchangeLimits { return x.limits }

// UserAgent is how the exchange names itself to agents.
func (x *Exchange) UserAgent() string { return x.userAgent[0] }

// Cause says what broke a connection, for people: without addresses of this
// machine.
func Cause(err error) string { return cause(err) }

// An OIDC issuer of one client, for client credentials: issuer.mjs PORT.
// Its access tokens are JWTs for TOKEN_AUDIENCE that last TOKEN_SECONDS. With
// TOKEN_ISSUER they name another issuer than this one. Each process has a key of
// its own, under one name.
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';

const port = Number(process.argv[2]);
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
const provider = new Provider(process.env.TOKEN_ISSUER ?? `http://127.0.0.1:${port}`, {
  jwks: { keys: [{ ...key, kid: 'key-1', use: 'sig', alg: 'RS256' }] },
  clients: [
    {
      client_id: 'verification', client_secret: 'secret-of-the-verification-zone',
      grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
    },
  ],
  ttl: { ClientCredentials: () => Number(process.env.TOKEN_SECONDS ?? 600) },
  features: {
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => process.env.TOKEN_AUDIENCE ?? 'urn:parley:execution',
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, audience) => ({ audience, scope: '', accessTokenFormat: 'jwt' }),
    },
  },
});
provider.listen(port, '127.0.0.1');

// It ends with whoever started it.
process.stdin.on('end', () => process.exit()).resume();

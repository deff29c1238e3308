// An OIDC issuer of one client, for client credentials: issuer.mjs PORT.
// Its access tokens are JWTs for the audience that is asked for.
import Provider from 'oidc-provider';

const port = Number(process.argv[2]);
const provider = new Provider(`http://127.0.0.1:${port}`, {
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

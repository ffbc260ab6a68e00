//! Certificates made for one test.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// A certificate and its key, in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// Somebody who signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = parameters(&[], name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = parameters.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(parameters, key);
        Self {
            issuer,
            certificate,
        }
    }

    /// One for hosts of these names and addresses, or for a person.
    pub fn sign(&self, hosts: &[&str], common_name: &str) -> Pair {
        self.sign_with(&parameters(hosts, common_name))
    }

    /// One that was good until 2001.
    pub fn sign_expired(&self, hosts: &[&str]) -> Pair {
        let mut parameters = parameters(hosts, "");
        parameters.not_after = date_time_ymd(2001, 1, 1);
        self.sign_with(&parameters)
    }

    /// One with this number.
    pub fn sign_numbered(&self, hosts: &[&str], number: u64) -> Pair {
        let mut parameters = parameters(hosts, "");
        parameters.serial_number = Some(SerialNumber::from(number));
        self.sign_with(&parameters)
    }

    fn sign_with(&self, parameters: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair {
            certificate: parameters.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// The list of what was revoked: the certificates of these numbers.
    pub fn revoke(&self, numbers: &[u64]) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// Signed by itself, and able to sign others, as `openssl req -x509` makes it.
pub fn self_signed(hosts: &[&str]) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut parameters = parameters(hosts, "self");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Pair {
        certificate: parameters.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

fn parameters(hosts: &[&str], common_name: &str) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut parameters = CertificateParams::new(hosts).unwrap();
    parameters
        .distinguished_name
        .push(DnType::CommonName, common_name);
    parameters
}
